"""CPUs: what a profile says of one, what LLVM is told, and which one this machine has.

The CPU of this machine is read from /proc/cpuinfo, not from LLVM: no TVM is imported, and in a
virtual machine LLVM's guess from the model number may promise instructions that are masked away.
Only what the kernel lists in the flags is ever switched on.
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
    """As `uname -m` says it; "cortex-m" for those."""
    features: tuple[str, ...]
    """Instructions that models may use: in the words of the board's own /proc/cpuinfo, or for
    Cortex-M those of `CORTEX_M_FEATURES`."""
    cores: int
    compile_flags: tuple[str, ...] = ()
    """What a C compiler must be told to compile for exactly this CPU."""


@dataclass(frozen=True)
class Target:
    """What TVM compiles for. Features are in LLVM's spelling: "+neon"."""

    kind: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    cores: int
    gpu: str | None = None
    """The architecture of NVIDIA's that runs what no library does, "sm_87"; None is the CPU."""

    def as_json(self) -> str:
        """What tvm.target.Target takes. The "c" kind knows a CPU's name and nothing more."""
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
"""What each of NVIDIA's has that TVM's runtime for CUDA 13 can run on."""


_ARCHITECTURES: Mapping[str, str] = {"amd64": "x86_64", "arm64": "aarch64"}


def architecture(triple: str) -> str:
    """Whose instructions a triple stands for, by one name, whoever spelled it."""
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
    """The CPU of this machine, and what TVM is to compile for it."""
    path = Path("/proc/cpuinfo")
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ProfileError(
            f"the CPU of this machine cannot be told: {path} cannot be read ({error.strerror})",
            hint="name another board with --board",
        ) from error
    return detect_cpu(text, platform.machine(), os.cpu_count() or 1)


def detect_cpu(cpuinfo: str, machine: str, cores: int) -> tuple[Cpu, Target]:
    """What /proc/cpuinfo says, for a machine whose `uname -m` is `machine`.

    `cores` counts where the text lists no processors."""
    processors = _processors(cpuinfo)
    cores = len(processors) or cores
    if machine in ("x86_64", "amd64"):
        return _detect_x86(processors, cores)
    if machine in ("aarch64", "arm64"):
        return _detect_arm(processors, cores)
    raise ProfileError(
        f"edgekit builds for x86-64 and aarch64 machines, and this one is {machine}",
        hint="name another board with --board",
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
    """LLVM's name where every instruction it stands for is there, else the highest level."""
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
    """One table of key and value for each processor."""
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
    """The flags that every processor lists (a thread may wake up on any of them), less those
    with which LLVM would switch on something that is not there."""
    lists = [set(processor.get(key, "").split()) for processor in processors]
    shared = set.intersection(*lists) if lists else set()
    usable: dict[str, None] = {}
    for flag, instructions in table.items():
        if flag in shared and all(need in usable for need in instructions.needs):
            usable[flag] = None
    return tuple(usable)


def _shared_value(processors: list[dict[str, str]], key: str) -> str:
    """The value where all processors have the same one; big.LITTLE machines have none."""
    values = {processor.get(key, "") for processor in processors}
    return values.pop() if len(values) == 1 else ""


def _shared_number(processors: list[dict[str, str]], key: str) -> int:
    value = _shared_value(processors, key)
    return int(value, 0) if re.fullmatch(r"[0-9]{1,9}|0x[0-9a-fA-F]{1,8}", value) else -1
