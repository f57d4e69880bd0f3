"""Sensors of GPUs: NVIDIA's discrete ones through their library, others through files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from edgekit.devices.sensors import nvml
from edgekit.devices.sensors.sensor import Quantity, Sensor
from edgekit.devices.sensors.snapshot import NVMAP_CLIENTS

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
