"""Finds sensors in a snapshot of sysfs. A quantity without a sensor is unknown, never zero."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath

from edgekit.devices.sensors import nvml
from edgekit.devices.sensors.sensor import Board, Quantity, Sensor
from edgekit.devices.sensors.snapshot import (
    NVMAP_CLIENTS,
    NVPMODEL,
    NVPMODEL_STATUS,
    PLAIN_FILES,
    folders,
)

_I2C, _HWMON = "/sys/bus/i2c/devices/", "/sys/class/hwmon/"
_TOTALS = ("VIN", "POM_5V_IN", "VDD_IN")
"""Names of a Jetson's total power rail, by preference."""
_NOT_A_RAIL = re.compile(r"NC|sum of shunt voltages", re.IGNORECASE)


def discover(snapshot: Mapping[str, str]) -> Board:
    rails = [*_ina3221(snapshot), *_ina3221_of_jetpack_4(snapshot), *_ina238(snapshot)]
    if not rails:
        rails = list(_power_of_monitors(snapshot))
    return Board(
        snapshot.get("/proc/device-tree/model"),
        _power_mode(snapshot),
        (
            *_with_total(rails),
            *_rapl(snapshot),
            *_temperatures(snapshot),
            *_clocks(snapshot),
            *_plain(snapshot),
            *_fans(snapshot),
            *graphics(snapshot),
        ),
    )


def _ina3221(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    for device in _i2c_devices(snapshot, "ina3221"):
        for folder in folders(
            snapshot, f"{device}/hwmon/", ("in1_label", "in2_label", "in3_label")
        ):
            for number in range(1, 9):
                label = snapshot.get(f"{folder}/in{number}_label", "")
                files = (f"{folder}/in{number}_input", f"{folder}/curr{number}_input")
                if label and not _NOT_A_RAIL.fullmatch(label) and _are_there(snapshot, files):
                    yield Sensor(label, "watts", files, 1e-6)  # mV times mA


def _ina3221_of_jetpack_4(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    for device in _i2c_devices(snapshot, "ina3221"):
        for path, label in snapshot.items():
            folder, _, name = path.rpartition("/")
            if not path.startswith(f"{device}/iio:device") or not name.startswith("rail_name_"):
                continue
            power = f"{folder}/in_power{name.removeprefix('rail_name_')}_input"
            if not _NOT_A_RAIL.fullmatch(label) and power in snapshot:
                yield Sensor(label, "watts", (power,), 1e-3)


def _ina238(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    for device in _i2c_devices(snapshot, "ina238"):
        for folder in folders(snapshot, f"{device}/hwmon/", ("power1_input",)):
            label = snapshot.get(f"{folder}/in1_label", "VIN")
            yield Sensor(label, "watts", (f"{folder}/power1_input",), 1e-6)


def _power_of_monitors(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    """Yield power sensors of any hardware monitor: a USB meter, an INA219 that the user added."""
    for folder in folders(snapshot, _HWMON, ("name",)):
        chip = snapshot[f"{folder}/name"]
        for number in range(1, 9):
            for kind in ("input", "average"):
                path = f"{folder}/power{number}_{kind}"
                if path in snapshot:
                    label = snapshot.get(f"{folder}/power{number}_label", f"{chip} {number}")
                    yield Sensor(label, "watts", (path,), 1e-6)
                    break


def _with_total(rails: list[Sensor]) -> tuple[Sensor, ...]:
    names = [sensor.name for sensor in rails]
    total = next((name for name in _TOTALS if name in names), None)
    if total is None and len(rails) == 1:
        total = names[0]
    return tuple(replace(sensor, is_total=sensor.name == total) for sensor in rails)


def _rapl(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    """Yield the energy counters of packages only: they include their parts, and `psys`, the whole
    platform, includes them."""
    for folder in folders(snapshot, "/sys/class/powercap/", ("energy_uj",)):
        zone = folder.rpartition("/")[2]
        if zone.count(":") != 1:
            continue
        name = snapshot.get(f"{folder}/name", zone)
        if name == "psys":
            continue
        most = _number(snapshot.get(f"{folder}/max_energy_range_uj"))
        yield Sensor(
            name,
            "joules",
            (f"{folder}/energy_uj",),
            1e-6,
            wraps_at=None if most is None else most * 1e-6,
        )


def _temperatures(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    zones = folders(snapshot, "/sys/class/thermal/", ("temp",))
    for folder in zones:
        name = snapshot.get(f"{folder}/type", folder.rpartition("/")[2])
        yield Sensor(name, "celsius", (f"{folder}/temp",), 1e-3)
    if zones:
        return
    for folder in folders(snapshot, _HWMON, ("name",)):
        for number in range(1, 17):
            path = f"{folder}/temp{number}_input"
            if path in snapshot:
                chip = snapshot[f"{folder}/name"]
                label = snapshot.get(f"{folder}/temp{number}_label", f"{chip} {number}")
                yield Sensor(label, "celsius", (path,), 1e-3)


def _clocks(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    for folder in folders(snapshot, "/sys/devices/system/cpu/", ("scaling_cur_freq",)):
        core = folder.split("/")[-2]
        yield Sensor(core, "megahertz", (f"{folder}/scaling_cur_freq",), 1e-3)


def _plain(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    for plain in PLAIN_FILES:
        for path in sorted(path for path in snapshot if PurePath(path).match(plain.pattern)):
            name = plain.name or PurePath(path).parent.name
            yield Sensor(name, plain.quantity, (path,), plain.scale)


def _fans(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    for folder in folders(snapshot, _HWMON, ("name",)):
        for number in range(1, 9):
            for name in (f"fan{number}_input", f"pwm{number}", *(("rpm",) if number == 1 else ())):
                if f"{folder}/{name}" in snapshot:
                    chip = snapshot[f"{folder}/name"]
                    yield Sensor(f"{chip} {name}", "fan", (f"{folder}/{name}",), 1.0)


def _power_mode(snapshot: Mapping[str, str]) -> str | None:
    """Return nvpmodel's mode, kept as `pmode:0002 fmode:fanNull`, with its name in nvpmodel's
    settings."""
    match = re.search(r"pmode:(\d{1,6})", snapshot.get(NVPMODEL_STATUS, ""))
    if match is None:
        return None
    number = int(match[1])
    name = re.search(rf"\bID={number} NAME=(\S+)", snapshot.get(NVPMODEL, ""))
    return f"{number} ({name[1]})" if name else str(number)


def _i2c_devices(snapshot: Mapping[str, str], chip: str) -> list[str]:
    return sorted(
        path.rpartition("/")[0]
        for path, value in snapshot.items()
        if path.startswith(_I2C)
        and path.count("/") == _I2C.count("/") + 1
        and path.endswith("/name")
        and chip in value
    )


def _are_there(snapshot: Mapping[str, str], files: tuple[str, ...]) -> bool:
    return all(_number(snapshot.get(file)) is not None for file in files)


def _number(text: str | None) -> int | None:
    try:
        return int(text or "", 0)
    except ValueError:
        return None


_NVML_SLOWED = 0xEC
"""Throttling reasons that count: the power cap, the board's slowdown, heat by software and
hardware, the power brake. Others are an idle GPU and clocks that a user set."""

_OF_NVML: tuple[tuple[str, Quantity, str, float], ...] = (
    (nvml.TEMPERATURE, "celsius", "", 1.0),
    (nvml.CORE_CLOCK, "megahertz", "", 1.0),
    (nvml.MEMORY_CLOCK, "megahertz", " memory", 1.0),
    (nvml.MEMORY, "bytes", "", 1.0),
    (nvml.FAN, "fan", " fan, percent", 1.0),
)


def graphics(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    yield from _nvml(snapshot)
    for path in sorted(snapshot):
        if re.fullmatch(r"/sys/class/drm/card[0-9]+/device/mem_info_vram_used", path):
            yield Sensor(path.split("/")[4], "bytes", (path,), 1.0)
    if NVMAP_CLIENTS in snapshot:
        yield Sensor("GPU", "bytes", (NVMAP_CLIENTS,), 1.0)


def _nvml(snapshot: Mapping[str, str]) -> Iterator[Sensor]:
    numbers = sorted(
        int(found[1])
        for path in snapshot
        if (found := re.fullmatch(rf"{nvml.ROOT}([0-9]{{1,4}})/{nvml.NAME}", path))
    )
    for number in numbers:
        folder = f"{nvml.ROOT}{number}"
        name = snapshot[f"{folder}/{nvml.NAME}"]
        if len(numbers) > 1:
            name = f"{name} {number}"
        # The counter covers the time between two readings; older GPUs have none.
        if (energy := f"{folder}/{nvml.ENERGY}") in snapshot:
            yield Sensor(name, "joules", (energy,), 1e-3)
        elif (power := f"{folder}/{nvml.POWER}") in snapshot:
            yield Sensor(name, "watts", (power,), 1e-3)
        for reading, quantity, suffix, scale in _OF_NVML:
            if (path := f"{folder}/{reading}") in snapshot:
                yield Sensor(f"{name}{suffix}", quantity, (path,), scale)
        if (reasons := f"{folder}/{nvml.THROTTLING}") in snapshot:
            yield Sensor(name, "throttling", (reasons,), 1.0, mask=_NVML_SLOWED)
