"""Trees of sysfs as boards have them, and what is made of them. No board was at hand: the layouts
are those of jetson-stats' sources and of the kernel's documentation."""

from __future__ import annotations

import importlib
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.needs import needs

from edgekit.base.errors import DeviceError
from edgekit.devices.linux.observing import observe_board
from edgekit.devices.sensors import nvml
from edgekit.devices.sensors.discovery import discover
from edgekit.devices.sensors.readings import observe
from edgekit.devices.sensors.sensor import Board, Sensor
from edgekit.devices.sensors.series import Readings, parse_reading
from edgekit.devices.sensors.snapshot import (
    NVMAP_CLIENTS,
    SCRIPT,
    THROTTLED,
    local_snapshot,
    parse_snapshot,
)
from edgekit.devices.sensors.state import Level
from edgekit.devices.sensors.watching import watched_for, watching

I2C = "sys/bus/i2c/devices/1-0040"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def found(root: Path) -> Board:
    return discover(local_snapshot(root))


ORIN = {
    f"{I2C}/name": "ina3221",
    f"{I2C}/hwmon/hwmon3/in1_label": "VDD_IN",
    f"{I2C}/hwmon/hwmon3/in1_input": "5000",
    f"{I2C}/hwmon/hwmon3/curr1_input": "1200",
    f"{I2C}/hwmon/hwmon3/in2_label": "VDD_CPU_GPU_CV",
    f"{I2C}/hwmon/hwmon3/in2_input": "5000",
    f"{I2C}/hwmon/hwmon3/curr2_input": "400",
    f"{I2C}/hwmon/hwmon3/in3_label": "NC",
    f"{I2C}/hwmon/hwmon3/in3_input": "0",
    f"{I2C}/hwmon/hwmon3/curr3_input": "0",
    f"{I2C}/hwmon/hwmon3/in7_label": "sum of shunt voltages",
    f"{I2C}/hwmon/hwmon3/in7_input": "12",
    f"{I2C}/hwmon/hwmon3/curr7_input": "1",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
    "sys/class/thermal/thermal_zone0/temp": "48500",
    "sys/class/thermal/thermal_zone1/type": "gpu-thermal",
    "sys/class/thermal/thermal_zone1/temp": "-256000",
    "sys/class/devfreq/17000000.ga10b/cur_freq": "306000000",
    "var/lib/nvpmodel/status": "pmode:0002 fmode:fanNull",
    "etc/nvpmodel.conf": "# modes\n< POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_0 1\n"
    "< POWER_MODEL ID=2 NAME=MAXN_SUPER >",
    NVMAP_CLIENTS.lstrip("/"): "CLIENT PROCESS PID SIZE\nuser trt 17 27000K\ntotal     27756K",
    "sys/devices/pwm-fan/cur_pwm": "80",
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano",
}


def test_a_jetson_with_ina3221_has_rails_and_one_of_them_is_all(tmp_path: Path) -> None:
    board = found(tree(tmp_path, ORIN))
    assert [(s.name, s.is_total) for s in board.of("watts")] == [
        ("VDD_IN", True),
        ("VDD_CPU_GPU_CV", False),
    ]
    assert board.power_mode == "2 (MAXN_SUPER)"
    assert board.model == "NVIDIA Jetson Orin Nano"
    observed = observe(board, None, watched_for(0.3, files_of(board), tmp_path))
    assert observed.power is not None
    assert observed.power.source == "VDD_IN"
    assert observed.power.watts == pytest.approx(6.0)
    assert {rail.name: rail.watts for rail in observed.power.rails} == pytest.approx(
        {"VDD_IN": 6.0, "VDD_CPU_GPU_CV": 2.0}
    )
    assert observed.warmth is not None
    assert observed.warmth.hottest == 48.5, "a zone at -256 degrees is a sensor that is off"
    assert observed.throttled is None, "this board has nothing that tells"
    assert observed.state is not None
    assert observed.state.power_mode == "2 (MAXN_SUPER)"
    assert observed.state.clocks == (Level("17000000.ga10b", 306.0, 306.0, 306.0),)
    assert observed.state.fans == (Level("pwm-fan", 80.0, 80.0, 80.0),)
    assert observed.state.gpu_memory == 27756 << 10


def test_jetpack_4_and_thor_have_other_files(tmp_path: Path) -> None:
    four = {
        f"{I2C}/name": "ina3221x",
        f"{I2C}/iio:device0/rail_name_0": "POM_5V_IN",
        f"{I2C}/iio:device0/in_power0_input": "3500",
        f"{I2C}/iio:device0/rail_name_1": "POM_5V_GPU",
        f"{I2C}/iio:device0/in_power1_input": "900",
    }
    board = found(tree(tmp_path / "four", four))
    observed = observe(board, None, watched_for(0.2, files_of(board), tmp_path / "four"))
    assert observed.power is not None
    assert (observed.power.source, observed.power.watts) == ("POM_5V_IN", pytest.approx(3.5))

    thor = {
        f"{I2C}/name": "ina238",
        f"{I2C}/hwmon/hwmon0/power1_input": "21500000",
        f"{I2C}/hwmon/hwmon0/in1_input": "19000",
    }
    board = found(tree(tmp_path / "thor", thor))
    observed = observe(board, None, watched_for(0.2, files_of(board), tmp_path / "thor"))
    assert observed.power is not None
    assert (observed.power.source, observed.power.watts) == ("VIN", pytest.approx(21.5))


def test_rails_without_a_total_are_added_up(tmp_path: Path) -> None:
    files = {
        f"{I2C}/name": "ina3221",
        f"{I2C}/hwmon/hwmon3/in1_label": "GPU",
        f"{I2C}/hwmon/hwmon3/in1_input": "5000",
        f"{I2C}/hwmon/hwmon3/curr1_input": "1000",
        f"{I2C}/hwmon/hwmon3/in2_label": "CPU",
        f"{I2C}/hwmon/hwmon3/in2_input": "5000",
        f"{I2C}/hwmon/hwmon3/curr2_input": "200",
    }
    board = found(tree(tmp_path, files))
    observed = observe(board, None, watched_for(0.2, files_of(board), tmp_path))
    assert observed.power is not None
    assert observed.power.source == "sum of GPU, CPU"
    assert observed.power.watts == pytest.approx(6.0)


def test_a_raspberry_pi_has_no_power_and_says_when_it_is_throttled(tmp_path: Path) -> None:
    pi = {
        THROTTLED.lstrip("/"): "50000",
        "sys/class/hwmon/hwmon1/name": "rpi_volt",
        "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "0",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
        "sys/class/thermal/thermal_zone0/temp": "61000",
    }
    board = found(tree(tmp_path, pi))
    observed = observe(board, None, watched_for(0.1, files_of(board), tmp_path))
    assert observed.power is None, "null, never zero"
    assert observed.throttled is False, "it was so at some time, and is not now"
    tree(tmp_path, {THROTTLED.lstrip("/"): "50005"})
    assert observe(board, None, watched_for(0.1, files_of(board), tmp_path)).throttled is True


def test_counters_of_energy_wrap(tmp_path: Path) -> None:
    rapl = {
        "sys/class/powercap/intel-rapl:0/name": "package-0",
        "sys/class/powercap/intel-rapl:0/energy_uj": "1000",
        "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
        "sys/class/powercap/intel-rapl:1/name": "psys",
        "sys/class/powercap/intel-rapl:1/energy_uj": "3000",
        "sys/class/powercap/intel-rapl:0:0/name": "core",
        "sys/class/powercap/intel-rapl:0:0/energy_uj": "500",
    }
    board = found(tree(tmp_path, rapl))
    (counter,) = board.of("joules")
    assert counter.name == "package-0"
    file = counter.files[0]
    end = 262143328850
    busy = Readings((0.0, 1.0, 2.0), {file: (end - 5_000_000, end - 1, 4_999_999)})
    idle = Readings((0.0, 2.0), {file: (0, 4_000_000)})
    observed = observe(board, idle, busy)
    assert observed.power is not None
    assert observed.power.joules == pytest.approx(10.0, rel=1e-5)
    assert observed.power.watts == pytest.approx(5.0, rel=1e-5)
    assert observed.power.idle_watts == pytest.approx(2.0)


def test_power_that_changes_is_integrated_and_gaps_are_left_out() -> None:
    board = Board(None, None, (Sensor("meter", "watts", ("/m",), 1e-6, is_total=True),))
    ramp = Readings((0.0, 0.5, 1.0, 9.0, 9.5), {"/m": (0, 1_000_000, 2_000_000, 4_000_000, None)})
    observed = observe(board, None, ramp)
    assert observed.power is not None
    assert observed.power.joules == pytest.approx(1.0)
    assert observed.power.seconds == pytest.approx(1.0), "nobody knows what was in between"
    none = observe(board, None, Readings((0.0, 1.0), {"/m": (None, None)}))
    assert none.power is None


def test_a_machine_without_sensors_says_nothing(tmp_path: Path) -> None:
    board = found(tmp_path)
    assert board.sensors == ()
    observed = observe(board, None, Readings((0.0, 1.0), {}))
    assert (observed.power, observed.warmth, observed.throttled) == (None, None, None)
    assert observed.state is None


def test_the_shell_tells_what_python_reads(tmp_path: Path) -> None:
    tree(tmp_path, ORIN)
    script = SCRIPT.replace(" /sys", f" {tmp_path}/sys").replace(" /var", f" {tmp_path}/var")
    script = script.replace(" /proc", f" {tmp_path}/proc").replace(" /etc", f" {tmp_path}/etc")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    told = parse_snapshot(done.stdout)
    assert {path.removeprefix(str(tmp_path)): value for path, value in told.items()} == (
        local_snapshot(tmp_path)
    )


def test_watching_ends_with_its_block(tmp_path: Path) -> None:
    tree(tmp_path, {"sys/a": "1"})
    gpus = AskedGpus({nvml.POWER: 30_000})
    files = ("/sys/a", "/sys/not-there", *files_of(discover(nvml.snapshot_of(gpus))))
    with pytest.raises(KeyError), watching(files, tmp_path, gpus) as watch:
        for _ in range(3):
            assert gpus.asked.acquire(timeout=240)
        raise KeyError
    readings = watch.end()
    assert len(readings.times) >= 3
    assert set(readings.values["/sys/a"]) == {1}
    assert set(readings.values["/sys/not-there"]) == {None}


class HangingSensors:
    """A connection over which nothing that reads sensors comes to an end."""

    def run(self, *words: object, **limits: object) -> None:
        raise DeviceError("it took too long", hint="wait")


def test_a_sensor_that_hangs_keeps_nobody_from_measuring() -> None:
    with observe_board(HangingSensors(), "agent", True) as observer:  # type: ignore[arg-type]
        observer.begin()
        assert observer.end() is None


def test_a_number_that_no_kernel_has_is_none() -> None:
    assert parse_reading("/m", "18446744073709551615") == (1 << 64) - 1
    assert parse_reading("/m", "9" * 400) is None, "a float can't hold it"


class WrittenDownGpus:
    """Numbers in the units that NVIDIA's documentation of NVML gives; none was read from a GPU."""

    def __init__(self, *gpus: dict[str, int]) -> None:
        self._gpus = gpus

    def names(self) -> tuple[str, ...]:
        return tuple("NVIDIA GeForce RTX 3060" for _ in self._gpus)

    def read(self, number: int, reading: str) -> int | None:
        return self._gpus[number].get(reading)

    def close(self) -> None:
        return


class AskedGpus(WrittenDownGpus):
    """Tells of every look at its power that goes on in the background."""

    def __init__(self, *gpus: dict[str, int]) -> None:
        super().__init__(*gpus)
        self.asked = threading.Semaphore(0)

    def read(self, number: int, reading: str) -> int | None:
        if threading.current_thread() is not threading.main_thread():
            self.asked.release()
        return super().read(number, reading)


def test_a_discrete_gpu_counts_its_energy(tmp_path: Path) -> None:
    told = {
        nvml.POWER: 55_000,
        nvml.ENERGY: 9_000_000,
        nvml.TEMPERATURE: 61,
        nvml.CORE_CLOCK: 1807,
        nvml.MEMORY_CLOCK: 7300,
        nvml.THROTTLING: 0x1,
        nvml.MEMORY: 3 << 30,
    }
    gpus = WrittenDownGpus(told)
    board = discover(nvml.snapshot_of(gpus))
    watched = watched_for(0.1, files_of(board), tmp_path, gpus)
    observed = observe(board, None, watched)
    assert observed.warmth is not None and observed.warmth.hottest == 61.0
    assert observed.throttled is False, "an idle GPU is not a throttled one"
    assert observed.state is not None
    assert observed.state.gpu_memory == 3 << 30
    assert {c.name: c.mean for c in observed.state.clocks} == {
        "NVIDIA GeForce RTX 3060": 1807.0,
        "NVIDIA GeForce RTX 3060 memory": 7300.0,
    }
    assert observed.state.fans == (), "it has no fan: nothing, and not zero"

    (counter,) = board.of("joules")
    file = counter.files[0]
    busy = Readings((0.0, 2.0), {file: (9_000_000, 9_110_000)})
    power = observe(board, Readings((0.0, 1.0), {file: (8_990_000, 9_000_000)}), busy).power
    assert power is not None
    assert (power.source, power.watts, power.idle_watts) == (
        "NVIDIA GeForce RTX 3060",
        pytest.approx(55.0),
        pytest.approx(10.0),
    )


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [(0x2, False), (0x4, True), (0x20, True), (0x48, True), (0x100, False)],
)
def test_a_gpu_is_throttled_by_heat_and_power_and_not_by_its_settings(
    reasons: int, throttled: bool, tmp_path: Path
) -> None:
    gpus = WrittenDownGpus({nvml.THROTTLING: reasons})
    board = discover(nvml.snapshot_of(gpus))
    assert observe(board, None, watched_for(0.05, files_of(board), tmp_path, gpus)).throttled is (
        throttled
    )


def test_what_a_gpu_does_not_tell_is_null(tmp_path: Path) -> None:
    gpus = WrittenDownGpus({nvml.POWER: 30_000}, {})
    board = discover(nvml.snapshot_of(gpus))
    observed = observe(board, None, watched_for(0.2, files_of(board), tmp_path, gpus))
    assert observed.power is not None and observed.power.watts == pytest.approx(30.0)
    assert (observed.warmth, observed.throttled, observed.state) == (None, None, None)


@needs("no-nvidia-driver")
def test_without_a_driver_there_are_no_gpus() -> None:
    assert nvml.open_gpus() is None


def test_a_library_that_refuses_everything_tells_of_no_gpu() -> None:
    library = importlib.import_module("pynvml")
    gpus = nvml.NvmlGpus(library)  # nobody has called nvmlInit
    assert gpus.names() == ()
    assert gpus.read(0, nvml.POWER) is None
    assert nvml.snapshot_of(gpus) == {}
    gpus.close()


PATHS = st.sampled_from([*ORIN, f"{I2C}/hwmon/hwmon3/power1_input", THROTTLED.lstrip("/")])


@given(st.dictionaries(PATHS, st.text(max_size=30)), st.lists(st.text(max_size=20), max_size=5))
def test_whatever_a_board_says_nothing_breaks(files: dict[str, str], values: list[str]) -> None:
    snapshot = parse_snapshot("\n".join(f"/{path}\t{text}" for path, text in files.items()))
    board = discover(snapshot)
    readings = Readings(
        tuple(float(place) for place in range(len(values))),
        {file: tuple(parse_reading(file, value) for value in values) for file in files_of(board)},
    )
    observed = observe(board, readings, readings)
    assert observed.power is None or observed.power.watts >= 0


def files_of(board: Board) -> tuple[str, ...]:
    return tuple(dict.fromkeys(file for sensor in board.sensors for file in sensor.files))
