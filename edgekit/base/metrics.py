"""Reads the state of the host during a measurement. A value that can't be read is None, never zero.

It uses the standard library only: the measuring process runs it too.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_CPUFREQ = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class HostState:
    """`governor` names every governor in use, joined by commas; the frequency is a mean."""

    governor: str | None
    frequency_mhz: float | None
    load_average: float | None
    """The load average of the last minute."""
    cores: int


def read_host_state(cores: int, cpufreq: Path = _CPUFREQ, cpuinfo: Path = _CPUINFO) -> HostState:
    """Read the host's state. `cores` are the `usable_cores` before TVM pins the process to some."""
    governors = {text for text in _per_cpu(cpufreq, "scaling_governor") if text}
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = None
    return HostState(
        governor=",".join(sorted(governors)) or None,
        frequency_mhz=_frequency(cpufreq, cpuinfo),
        load_average=load,
        cores=cores,
    )


def usable_cores() -> int:
    """Return the cores that this process may run on, possibly fewer than the host has."""
    return len(os.sched_getaffinity(0))


def reset_peak_memory() -> bool:
    """Reset the kernel's record of this process's peak; False if that is not possible."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def memory_now() -> int | None:
    """Return the resident bytes of this process."""
    return _status_bytes("VmRSS")


def memory_peak() -> int | None:
    """Return the most resident bytes of this process since its start or `reset_peak_memory`."""
    return _status_bytes("VmHWM")


def _status_bytes(key: str) -> int | None:
    try:
        match = re.search(rf"^{key}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def _frequency(cpufreq: Path, cpuinfo: Path) -> float | None:
    kilohertz = [int(text) for text in _per_cpu(cpufreq, "scaling_cur_freq") if text.isdecimal()]
    if kilohertz:
        return sum(kilohertz) / len(kilohertz) / 1000
    try:
        text = cpuinfo.read_text()
    except OSError:
        return None
    megahertz = [float(m) for m in re.findall(r"^cpu MHz\s*: ([0-9.]+)$", text, re.MULTILINE)]
    return sum(megahertz) / len(megahertz) if megahertz else None


def _per_cpu(cpufreq: Path, name: str) -> list[str]:
    found = []
    for file in sorted(cpufreq.glob(f"cpu[0-9]*/cpufreq/{name}")):
        try:
            found.append(file.read_text().strip())
        except OSError:
            continue  # an offline core
    return found
