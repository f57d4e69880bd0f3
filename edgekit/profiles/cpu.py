"""Describes CPUs for profiles and LLVM, and detects this host's.

The CPU of this host is read from /proc/cpuinfo, not from LLVM: no TVM is imported, and in a virtual
machine LLVM's guess from the model number may include masked instructions. Only instructions in the
kernel's flags are enabled.
"""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.base.errors import ProfileError
from edgekit.base.options import option
from edgekit.profiles.architecture import architecture_of, architecture_of_machine, architectures
from edgekit.profiles.gpu import GpuLimits


@dataclass(frozen=True)
class Cpu:
    """The processor of a board."""

    name: str
    arch: str
    """The name of its architecture's file: as in `uname -m` where it has an operating system."""
    features: tuple[str, ...]
    """Instructions that models may use, named as in its architecture's file."""
    cores: int
    compile_flags: tuple[str, ...] = ()
    """Flags of a C compiler for exactly this CPU."""


@dataclass(frozen=True)
class Target:
    """TVM's target. Features are in LLVM's spelling: "+neon"."""

    kind: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    cores: int
    gpu: GpuLimits | None = None
    """The GPU that runs what no library does; None is the CPU."""

    def with_rest(self, rest: GpuLimits | None) -> Target:
        """Return the target with another processor for what no library does."""
        return replace(self, gpu=rest)

    def as_json(self) -> str:
        """Return JSON for tvm.target.Target. The "c" kind only takes a CPU's name. Of a board with
        kernels on a GPU it is the CPU, which runs what its GPU can't."""
        if self.kind == "c":
            return json.dumps({"kind": self.kind, "mcpu": self.cpu})
        target: dict[str, object] = {
            "kind": self.kind,
            "mtriple": self.triple,
            "mcpu": self.cpu,
        }
        architecture = architecture_of(self.triple)
        if architecture is not None:
            target.update(architecture.llvm.abi)
            if architecture.llvm.vector_bits:
                target["vector-width"] = architecture.llvm.vector_bits
        if self.features:
            target["mattr"] = list(self.features)
        target["num-cores"] = self.cores
        return json.dumps(target)


def this_cpu() -> tuple[Cpu, Target]:
    """Return the CPU of this host, and TVM's target for it."""
    path = Path("/proc/cpuinfo")
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ProfileError(
            f"the CPU of this machine cannot be told: {path} cannot be read ({error.strerror})",
            hint=f"name another board with {option('board')}",
        ) from error
    return detect_cpu(text, platform.machine(), os.cpu_count() or 1)


def detect_cpu(cpuinfo: str, machine: str, cores: int) -> tuple[Cpu, Target]:
    """Read the CPU from /proc/cpuinfo of a host whose `uname -m` is `machine`.

    `cores` is used if the text lists no processors."""
    architecture = architecture_of_machine(machine)
    if architecture is None:
        known = ", ".join(known.title for known in architectures().values() if known.debian)
        raise ProfileError(
            f"edgekit builds for {known}, and this machine is {machine}",
            hint=f"name another board with {option('board')}",
        )
    processors = _processors(cpuinfo)
    words = [architecture.words_in(each.get(architecture.cpuinfo.flags, "")) for each in processors]
    # Only what every processor has: a thread may move to any of them.
    flags = architecture.usable(set.intersection(*words) if words else ())
    identity = tuple(_shared_value(processors, key) for key in architecture.cpuinfo.identity)
    name = architecture.name_of(identity, flags)
    title = _shared_value(processors, architecture.cpuinfo.title) or name
    cores = len(processors) or cores
    features = architecture.features(name, flags)
    return (
        Cpu(title, architecture.name, flags, cores),
        Target("llvm", architecture.triple, name, features, cores),
    )


def _processors(cpuinfo: str) -> list[dict[str, str]]:
    """Return a table of keys and values for each processor."""
    processors: list[dict[str, str]] = []
    for block in re.split(r"\n[ \t]*\n", cpuinfo):
        pairs = (line.partition(":") for line in block.splitlines())
        table = {key.strip(): value.strip() for key, colon, value in pairs if colon}
        if "processor" in table and table["processor"].isdigit():
            processors.append(table)
    return processors


def _shared_value(processors: list[dict[str, str]], key: str) -> str:
    """Return the value if all processors have the same one; big.LITTLE hosts have none."""
    values = {processor.get(key, "") for processor in processors}
    return values.pop() if len(values) == 1 else ""
