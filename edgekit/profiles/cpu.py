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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import ProfileError
from edgekit.base.options import option
from edgekit.profiles.instruction_sets import (
    ARM_CPUS,
    ARM_FLAGS,
    ARM_OPTIONAL_FLAGS,
    X86_CPUS,
    X86_FLAGS,
    X86_LEVELS,
    Instructions,
)


@dataclass(frozen=True)
class Cpu:
    """The processor of a board."""

    name: str
    arch: str
    """The architecture as in `uname -m`, or "cortex-m"."""
    features: tuple[str, ...]
    """Instructions that models may use, named as in the board's /proc/cpuinfo, or for Cortex-M
    as in `CORTEX_M_FEATURES`."""
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
    gpu: str | None = None
    """The GPU that runs what no library does, such as "sm_87"; None is the CPU."""

    def as_json(self) -> str:
        """Return JSON for tvm.target.Target. The "c" kind only takes a CPU's name."""
        if self.kind == "c":
            return json.dumps({"kind": self.kind, "mcpu": self.cpu})
        target: dict[str, object] = {
            "kind": self.kind,
            "mtriple": self.triple,
            "mcpu": self.cpu,
        }
        if self.features:
            target["mattr"] = list(self.features)
        target["num-cores"] = self.cores
        if self.gpu is not None:
            target = {"kind": "cuda", "arch": self.gpu, **_ANY_GPU, "host": target}
        return json.dumps(target)


_ANY_GPU = {
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 48 << 10,
    "thread_warp_size": 32,
}
"""The limits of every GPU that TVM's runtime for CUDA 13 supports."""


_ARCHITECTURES: Mapping[str, str] = {"amd64": "x86_64", "arm64": "aarch64"}


def architecture(triple: str) -> str:
    """Return the architecture of a triple, by one name for all spellings."""
    first = triple.partition("-")[0]
    if re.fullmatch(r"(arm|thumb)(v[0-9a-z.]+)?", first):
        return "arm"
    return _ARCHITECTURES.get(first, first)


# Sapphire Rapids and its successors are left to their level: LLVM's names for them imply AMX.
_INTEL_MODELS: Mapping[int, str] = {
    60: "haswell", 63: "haswell", 69: "haswell", 70: "haswell",
    61: "broadwell", 71: "broadwell", 79: "broadwell", 86: "broadwell",
    78: "skylake", 94: "skylake", 142: "skylake", 158: "skylake", 165: "skylake", 166: "skylake",
    85: "cascadelake", 106: "icelake-server", 108: "icelake-server",
    125: "icelake-client", 126: "icelake-client", 140: "tigerlake", 141: "tigerlake",
    167: "rocketlake", 151: "alderlake", 154: "alderlake", 183: "alderlake", 186: "alderlake",
}  # fmt: skip
_POORER_TWIN: Mapping[str, str] = {"cascadelake": "skylake-avx512"}

_ARM_PARTS: Mapping[tuple[int, int], str] = {
    (0x41, 0xD04): "cortex-a35", (0x41, 0xD03): "cortex-a53", (0x41, 0xD07): "cortex-a57",
    (0x41, 0xD08): "cortex-a72", (0x41, 0xD09): "cortex-a73", (0x41, 0xD05): "cortex-a55",
    (0x41, 0xD0A): "cortex-a75", (0x41, 0xD0B): "cortex-a76", (0x41, 0xD0D): "cortex-a77",
    (0x41, 0xD41): "cortex-a78", (0x41, 0xD42): "cortex-a78ae", (0x41, 0xD44): "cortex-x1",
    (0x41, 0xD0C): "neoverse-n1", (0x4E, 0x004): "carmel",
}  # fmt: skip


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
    processors = _processors(cpuinfo)
    cores = len(processors) or cores
    if machine in ("x86_64", "amd64"):
        return _detect_x86(processors, cores)
    if machine in ("aarch64", "arm64"):
        return _detect_arm(processors, cores)
    raise ProfileError(
        f"edgekit builds for x86-64 and aarch64 machines, and this one is {machine}",
        hint=f"name another board with {option('board')}",
    )


def _detect_x86(processors: list[dict[str, str]], cores: int) -> tuple[Cpu, Target]:
    flags = _usable(processors, "flags", X86_FLAGS)
    name = _x86_name(processors, flags)
    given = set(X86_CPUS.get(name) or X86_LEVELS[name])
    features = tuple(f"+{X86_FLAGS[flag].llvm}" for flag in flags if flag not in given)
    title = _shared_value(processors, "model name") or "x86-64"
    return (
        Cpu(title, "x86_64", flags, cores),
        Target("llvm", "x86_64-linux-gnu", name, features, cores),
    )


def _x86_name(processors: list[dict[str, str]], flags: tuple[str, ...]) -> str:
    """Return LLVM's name if the CPU has all its instructions, else the highest level."""
    vendor = _shared_value(processors, "vendor_id")
    family = _shared_number(processors, "cpu family")
    model = _shared_number(processors, "model")
    name = ""
    if vendor == "GenuineIntel" and family == 6:
        name = _INTEL_MODELS.get(model, "")
    elif vendor == "AuthenticAMD":
        name = _amd_name(family, model)
    for candidate in (name, _POORER_TWIN.get(name, "")):
        if candidate and set(X86_CPUS[candidate]) <= set(flags):
            return candidate
    return next(level for level, needed in X86_LEVELS.items() if set(needed) <= set(flags))


def _amd_name(family: int, model: int) -> str:
    if family == 0x17:
        return "znver2" if model >= 0x30 else "znver1"
    if family == 0x19:
        zen4 = 0x10 <= model <= 0x1F or 0x60 <= model <= 0x7F or 0xA0 <= model <= 0xAF
        return "znver4" if zen4 else "znver3"
    return "znver5" if family == 0x1A else ""


def _detect_arm(processors: list[dict[str, str]], cores: int) -> tuple[Cpu, Target]:
    flags = _usable(processors, "Features", ARM_FLAGS)
    part = (
        _shared_number(processors, "CPU implementer"),
        _shared_number(processors, "CPU part"),
    )
    name = _ARM_PARTS.get(part, "generic")
    if not set(ARM_CPUS.get(name, ())) <= set(flags):
        name = "generic"
    return (
        Cpu(name, "aarch64", flags, cores),
        Target("llvm", "aarch64-linux-gnu", name, _arm_features(name, flags), cores),
    )


def _arm_features(name: str, flags: tuple[str, ...]) -> tuple[str, ...]:
    given = {"fp", "asimd", *ARM_CPUS.get(name, ())}
    features = ["+neon"] if "asimd" in flags else []
    for flag, instructions in ARM_FLAGS.items():
        if flag in ARM_OPTIONAL_FLAGS and name != "generic":
            features += [] if flag in flags else [f"-{instructions.llvm}"]
        elif flag in flags and flag not in given:
            features.append(f"+{instructions.llvm}")
    return tuple(features)


def _processors(cpuinfo: str) -> list[dict[str, str]]:
    """Return a table of keys and values for each processor."""
    processors: list[dict[str, str]] = []
    for block in re.split(r"\n[ \t]*\n", cpuinfo):
        pairs = (line.partition(":") for line in block.splitlines())
        table = {key.strip(): value.strip() for key, colon, value in pairs if colon}
        if "processor" in table and table["processor"].isdigit():
            processors.append(table)
    return processors


def _usable(
    processors: list[dict[str, str]], key: str, table: Mapping[str, Instructions]
) -> tuple[str, ...]:
    """Return the flags that every processor has, because a thread may move to any of them.

    Flags with which LLVM would enable missing instructions are left out.
    """
    lists = [set(processor.get(key, "").split()) for processor in processors]
    shared = set.intersection(*lists) if lists else set()
    usable: dict[str, None] = {}
    for flag, instructions in table.items():
        if flag in shared and all(need in usable for need in instructions.needs):
            usable[flag] = None
    return tuple(usable)


def _shared_value(processors: list[dict[str, str]], key: str) -> str:
    """Return the value if all processors have the same one; big.LITTLE hosts have none."""
    values = {processor.get(key, "") for processor in processors}
    return values.pop() if len(values) == 1 else ""


def _shared_number(processors: list[dict[str, str]], key: str) -> int:
    value = _shared_value(processors, key)
    return int(value, 0) if re.fullmatch(r"[0-9]{1,9}|0x[0-9a-fA-F]{1,8}", value) else -1
