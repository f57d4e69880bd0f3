"""Architectures of CPUs, each described by a file of `architectures/` (docs/boards.md)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from edgekit.base.decode import decode
from edgekit.base.toml_source import read_toml

_FOLDER = Path(__file__).parent / "architectures"


@dataclass(frozen=True)
class Instructions:
    """A group of instructions that the kernel has a word for."""

    llvm: str = ""
    """LLVM's name for it."""
    needs: tuple[str, ...] = ()
    """The kernel's words for the groups that LLVM enables with this one."""
    floats: bool = False
    """Whether they compute with float32."""


@dataclass(frozen=True)
class Core:
    """A CPU that LLVM has a name for."""

    like: str = ""
    """Another name, all of whose instructions this CPU has."""
    has: tuple[str, ...] = ()
    """The kernel's words for its other instructions."""
    optional: tuple[str, ...] = ()
    """Instructions that LLVM takes for granted and that some CPUs of this name lack."""
    ids: tuple[str, ...] = ()
    """Values of the identity's keys, between slashes. A number may be a range."""


@dataclass(frozen=True)
class Vectors:
    """Registers for several numbers."""

    lanes: int
    """float32 numbers in a register."""
    registers: int
    feature: str = ""
    """LLVM's name for the instructions that a CPU needs for them."""


@dataclass(frozen=True)
class Emulators:
    """QEMU's programs."""

    system: str = ""
    package: str = ""
    """The Debian package of the system emulator."""
    user: str = ""
    options: tuple[str, ...] = ()
    """Options of the system emulator that every microcontroller needs."""


@dataclass(frozen=True)
class Guest:
    """The system of an emulated board."""

    kernel: str
    """The Debian package that depends on the newest kernel."""
    console: str
    """The kernel's name for the serial line."""
    releases: tuple[str, ...]
    """The Debian releases that have the architecture, the oldest first."""


@dataclass(frozen=True)
class CpuInfo:
    """The keys of /proc/cpuinfo."""

    flags: str = ""
    """The key of the instructions' words."""
    title: str = ""
    identity: tuple[str, ...] = ()
    """The keys that tell one CPU from another."""


@dataclass(frozen=True)
class Llvm:
    """What LLVM knows and takes for granted."""

    cpus: tuple[str, ...]
    features: tuple[str, ...] = ()
    """Features that a profile may name and the kernel has no word for."""
    named: tuple[str, ...] = ()
    """Instructions that a target always names."""
    target: str = ""
    """The name of LLVM's code generator, if it is not the architecture's."""
    abi: Mapping[str, str] = field(default_factory=dict)
    """Keys of TVM's target that choose the calling convention."""
    vector_bits: int = 0
    """The width of vectors, where TVM does not know it by itself."""


@dataclass(frozen=True)
class Architecture:
    """An architecture, by the name that `uname -m` prints; those without a system have none."""

    title: str
    triple: str
    bits: int
    llvm: Llvm
    elf: str = ""
    """The name of the ELF machine; empty where code is in no ELF file."""
    qemu: Emulators = field(default_factory=Emulators)
    name: str = ""
    """The name of its file."""
    also_named: tuple[str, ...] = ()
    """Other names, in triples and of `uname -m`."""
    debian: str = ""
    has_os: bool = True
    in_engine: bool = False
    """Whether an engine runs its code, and no CPU does."""
    dot_products: str = ""
    """The family of instructions that multiply small integers in groups."""
    core_registers: int = 16
    """Registers for integers."""
    multiplies_by_lane: bool = False
    """Whether a vector times one lane of another is one instruction."""
    vectors: tuple[Vectors, ...] = ()
    guest: Guest | None = None
    """The system of an emulated board; None if edgekit emulates none of this architecture."""
    cpuinfo: CpuInfo = field(default_factory=CpuInfo)
    flags: Mapping[str, Instructions] = field(default_factory=dict)
    cpus: Mapping[str, Core] = field(default_factory=dict)
    levels: Mapping[str, Core] = field(default_factory=dict)
    """The names for CPUs with an unknown identity."""

    def instructions(self, cpu: str) -> tuple[str, ...]:
        """Return the kernel's words for what a CPU of this name has, without the optional ones."""
        return tuple(flag for core in self._cores(cpu) for flag in core.has)

    def optional(self, cpu: str) -> tuple[str, ...]:
        """Return the kernel's words for what a CPU of this name may lack, against LLVM's belief."""
        return tuple(flag for core in self._cores(cpu) for flag in core.optional)

    def _cores(self, cpu: str) -> tuple[Core, ...]:
        """Return the core of that name, or of the lowest level, after those that it is like."""
        core = self.cpus.get(cpu) or self.levels.get(cpu)
        if core is None:
            return self._cores([*self.levels][-1]) if self.levels else ()
        return (*(self._cores(core.like) if core.like else ()), core)

    def implied(self, cpu: str) -> frozenset[str]:
        """Return the kernel's words for what LLVM takes for granted of a CPU of this name."""
        return frozenset((*self.instructions(cpu), *self.optional(cpu)))

    def name_of(self, identity: tuple[str, ...], flags: Collection[str]) -> str:
        """Return LLVM's name for a CPU, from its identity and its instructions."""
        names = [name for name, core in self.cpus.items() if _matches(core.ids, identity)]
        for name in (*names, *self.levels):
            if set(self.instructions(name)) <= set(flags):
                return name
        return [*self.levels][-1]

    def features(self, cpu: str, flags: Collection[str]) -> tuple[str, ...]:
        """Return LLVM's features of a CPU beyond those that its name implies."""
        implied, optional = self.implied(cpu), self.optional(cpu)
        signed = [f"+{self.flags[flag].llvm}" for flag in self.llvm.named if flag in flags]
        for flag, group in self.flags.items():
            # Without any words the kernel lists none: then the name is believed.
            if flag not in flags and (flag in optional or (flags and flag in implied)):
                signed.append(f"-{group.llvm}")
            elif flag in flags and flag not in implied:
                signed.append(f"+{group.llvm}")
        return tuple(signed)

    def required(self, cpu: str, features: Collection[str]) -> tuple[str, ...]:
        """Return the kernel's words for the instructions that LLVM may use."""
        words = set(self.implied(cpu))
        for flag, group in self.flags.items():
            if f"+{group.llvm}" in features:
                words.update((flag, *group.needs))
            elif f"-{group.llvm}" in features:
                words.discard(flag)
        return tuple(flag for flag in self.flags if flag in words)

    def usable(self, flags: Collection[str]) -> tuple[str, ...]:
        """Return the known words among the kernel's, without those that LLVM would enable together
        with missing instructions."""
        found: dict[str, None] = {}
        for flag, group in self.flags.items():
            if flag in flags and all(need in found for need in group.needs):
                found[flag] = None
        return tuple(found)

    def words_in(self, text: str) -> set[str]:
        """Return the kernel's words for instructions in the value of its key in /proc/cpuinfo.

        An ISA string of RISC-V, such as rv64imafdc_zba_zbb, is split into its extensions.
        """
        match = re.match(r"rv(?:32|64)([a-z]*)((?:_[a-z0-9]+)*)$", text.strip())
        if match is None:
            return set(text.split())
        letters = match[1].replace("g", "imafd")
        return {*letters, *match[2].split("_")} - {""}

    @property
    def features_of_profiles(self) -> tuple[str, ...]:
        """LLVM's names for the features that a profile may switch on and off."""
        return (*(group.llvm for group in self.flags.values() if group.llvm), *self.llvm.features)


@cache
def architectures() -> Mapping[str, Architecture]:
    """Return all architectures by their names."""
    found = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        document = {**read_toml(path).table, "name": path.stem}
        found[path.stem] = decode(Architecture, document, path.name)
    return MappingProxyType(found)


def architecture_of(triple: str) -> Architecture | None:
    """Return the architecture of a triple; None if it is unknown."""
    first, *others = triple.split("-")
    has_os = not {"none", "elf"}.intersection(others)
    if re.fullmatch(r"(arm|thumb)(v[0-9a-z.]+)?", first):
        first = "arm"
    for architecture in architectures().values():
        names = (architecture.name, *architecture.also_named)
        if first in names and architecture.has_os == has_os:
            return architecture
    return None


def architecture(triple: str) -> str:
    """Return the name of a triple's architecture, or the triple's first word if it is unknown."""
    found = architecture_of(triple)
    return triple.partition("-")[0] if found is None else found.name


def architecture_of_machine(machine: str) -> Architecture | None:
    """Return the architecture of a host, from what `uname -m` prints there."""
    for found in architectures().values():
        if found.has_os and not found.in_engine and machine in (found.name, *found.also_named):
            return found
    return None


def _matches(ids: Collection[str], identity: tuple[str, ...]) -> bool:
    return any(
        len(parts := known.split("/")) == len(identity)
        and all(_is(part, value) for part, value in zip(parts, identity, strict=True))
        for known in ids
    )


def _is(part: str, value: str) -> bool:
    """Return whether a value is the part's word or number, or within its range of numbers."""
    if not re.fullmatch(r"[0-9]{1,9}|0x[0-9a-fA-F]{1,8}", value):
        return part == value
    low, _, high = part.partition("-")
    try:
        return int(low, 0) <= int(value, 0) <= int(high or low, 0)
    except ValueError:
        return False
