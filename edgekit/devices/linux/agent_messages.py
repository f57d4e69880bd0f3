"""The messages of the agent on a board, line by line. None of it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.base.errors import DeviceError
from edgekit.base.json_reader import read_json
from edgekit.base.metrics import HostState
from edgekit.devices.base import BenchSamples, MemoryUse
from edgekit.devices.kernel_times import parse_kernel_times
from edgekit.devices.linux.region_work import WORKING

STARTING = "starting"
"""Phase before the agent's first message."""

_MOST_SAMPLES = 1_000_000


@dataclass(frozen=True)
class AgentInfo:
    """Facts that a board reports about itself. Unknown is None, never zero."""

    agent: str
    tvm: str
    tvm_ffi: str
    machine: str
    kernel: str
    hostname: str
    glibc: str
    features: tuple[str, ...]
    cores: int
    memory: int | None
    memory_available: int | None
    disk_free: int | None
    millidegrees: int | None


class AgentMessages:
    """Reads the agent's lines as they come, and ignores what a model prints in between."""

    def __init__(self) -> None:
        self.phase = STARTING
        self.threads: int | None = None
        self.error: str | None = None
        self.samples: list[int] = []
        """Nanoseconds of each finished sample."""
        self.answer: Mapping[str, Any] | None = None

    def take(self, line: str) -> Mapping[str, Any] | None:
        """Return the message in a line; None if it holds none."""
        if not line.startswith("{"):
            return None
        try:
            message = read_json(line)
        except ValueError:
            return None
        if not isinstance(message, dict):
            return None
        if "error" in message:
            self.error = str(message["error"])
        elif WORKING in message:
            pass  # a sign of life
        elif "phase" in message:
            self.phase = str(message["phase"])[:40]
            if isinstance(message.get("threads"), int):
                self.threads = message["threads"]
        elif "sample" in message and isinstance(message.get("nanoseconds"), int):
            self.samples.append(message["nanoseconds"])
        else:
            self.answer = message
        return message


def parse_info(line: str, name: str) -> AgentInfo:
    try:
        said = read_json(line)
        return AgentInfo(
            agent=str(said["agent"]),
            tvm=str(said["tvm"]),
            tvm_ffi=str(said["tvm_ffi"]),
            machine=str(said["machine"]),
            kernel=str(said["kernel"]),
            hostname=str(said["hostname"]),
            glibc=str(said["glibc"]),
            features=tuple(str(feature) for feature in said["features"]),
            cores=int(said["cores"]),
            memory=_number(said["memory"]),
            memory_available=_number(said["memory_available"]),
            disk_free=_number(said["disk_free"]),
            millidegrees=_number(said["millidegrees"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise _nonsense(name) from error


def parse_bench(said: Mapping[str, Any], name: str) -> BenchSamples:
    try:
        nanoseconds = tuple(int(value) for value in said["nanoseconds"])
        if not 0 < len(nanoseconds) <= _MOST_SAMPLES or min(nanoseconds) < 0:
            raise ValueError("no samples")
        return BenchSamples(
            nanoseconds=nanoseconds,
            warmup=int(said["warmup"]),
            threads=int(said["threads"]),
            memory=MemoryUse(_number(said["memory_before"]), _number(said["memory_peak"])),
            host_before=_host(said["host_before"]),
            host_after=_host(said["host_after"]),
            preemptions=_number(said["preemptions"]),
            kernels=parse_kernel_times(said),
            load_nanoseconds=_number(said["load_nanoseconds"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise _nonsense(name) from error


def _host(said: Mapping[str, Any]) -> HostState:
    frequency, load = said["frequency_mhz"], said["load_average"]
    return HostState(
        governor=None if said["governor"] is None else str(said["governor"]),
        frequency_mhz=None if frequency is None else float(frequency),
        load_average=None if load is None else float(load),
        cores=int(said["cores"]),
    )


def _number(value: object) -> int | None:
    return None if value is None else int(str(value))


def _nonsense(name: str) -> DeviceError:
    return DeviceError(
        f"the agent on {name} gave an answer that makes no sense",
        hint="something else may write to its output; check the device's disk and memory",
    )
