"""NVIDIA's GPUs as further files of a snapshot, under paths that no file system has.

Only `NvmlGpus` knows NVIDIA's library; discovery interprets its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

ROOT = "/nvml/"
NAME = "name"

POWER, ENERGY, TEMPERATURE = "power_mw", "energy_mj", "temperature_c"
CORE_CLOCK, MEMORY_CLOCK = "core_clock_mhz", "memory_clock_mhz"
THROTTLING, MEMORY, FAN = "throttle_reasons", "memory_used_bytes", "fan_percent"
READINGS = (
    *(POWER, ENERGY, TEMPERATURE, CORE_CLOCK, MEMORY_CLOCK),
    *(THROTTLING, MEMORY, FAN),
)


class Gpus(Protocol):
    """The questions that edgekit asks a set of GPUs."""

    def names(self) -> tuple[str, ...]:
        """Return the names in the order of the GPUs' numbers."""

    def read(self, number: int, reading: str) -> int | None:
        """Return one of READINGS; None if this GPU does not report it."""

    def close(self) -> None: ...


def snapshot_of(gpus: Gpus) -> dict[str, str]:
    """Return the GPUs' readings as `local_snapshot` returns files, without missing ones."""
    found: dict[str, str] = {}
    for number, name in enumerate(gpus.names()):
        found[f"{ROOT}{number}/{NAME}"] = name
        for reading in READINGS:
            value = gpus.read(number, reading)
            if value is not None:
                found[f"{ROOT}{number}/{reading}"] = str(value)
    return found


def read_path(gpus: Gpus | None, path: str) -> int | None:
    number, _, reading = path.removeprefix(ROOT).partition("/")
    if gpus is None or not number.isdecimal():
        return None
    return gpus.read(int(number), reading)


def open_gpus() -> Gpus | None:
    """Open NVIDIA's library; None without the package nvidia-ml-py, a driver or permission."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return NvmlGpus(pynvml)


class NvmlGpus:
    """GPUs through NVIDIA's own Python package. Each reading may be refused at any moment."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles = self._asked(self._found) or []
        n = nvml
        self._ways: Mapping[str, Callable[[Any], Any]] = {
            POWER: n.nvmlDeviceGetPowerUsage,
            ENERGY: n.nvmlDeviceGetTotalEnergyConsumption,
            TEMPERATURE: lambda gpu: n.nvmlDeviceGetTemperature(gpu, n.NVML_TEMPERATURE_GPU),
            CORE_CLOCK: lambda gpu: n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_SM),
            MEMORY_CLOCK: lambda gpu: n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_MEM),
            THROTTLING: n.nvmlDeviceGetCurrentClocksThrottleReasons,
            MEMORY: lambda gpu: n.nvmlDeviceGetMemoryInfo(gpu).used,
            FAN: n.nvmlDeviceGetFanSpeed,
        }

    def names(self) -> tuple[str, ...]:
        return tuple(self._name_of(gpu) for gpu in self._handles)

    def read(self, number: int, reading: str) -> int | None:
        way = self._ways.get(reading)
        if way is None or number >= len(self._handles):
            return None
        value = self._asked(lambda: way(self._handles[number]))
        return value if isinstance(value, int) and value >= 0 else None

    def close(self) -> None:
        self._asked(self._nvml.nvmlShutdown)

    def _found(self) -> list[Any]:
        count = self._nvml.nvmlDeviceGetCount()
        return [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]

    def _name_of(self, gpu: Any) -> str:
        name = self._asked(lambda: self._nvml.nvmlDeviceGetName(gpu))
        return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "GPU")

    def _asked(self, question: Callable[[], Any]) -> Any:
        with suppress(self._nvml.NVMLError):
            return question()
        return None
