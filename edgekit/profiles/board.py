"""Reads board profiles. docs/boards.md describes the file."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, cast, get_args

from edgekit.base.errors import ProfileError
from edgekit.base.json_text import INTERNAL
from edgekit.base.own_backends import own_backends
from edgekit.base.sizes import format_size
from edgekit.profiles.architecture import architecture, architectures
from edgekit.profiles.cpu import Cpu, Target, this_cpu
from edgekit.profiles.gpu import Gpu, GpuLimits, parse_gpu, parse_rest
from edgekit.profiles.hardware import Firmware, Flash, parse_firmware, parse_flash
from edgekit.profiles.kinds import KINDS, BoardKind, HasKind, TargetKind, Traits, TransportKind
from edgekit.profiles.offload import OffloadSettings, parse_settings
from edgekit.profiles.reader import (
    NAME_EXPECTED,
    Problem,
    TableReader,
    examine_profile,
    find_profile,
    load_profile,
    profile_names,
    show,
)
from edgekit.profiles.toolchain import Toolchain, load_toolchain, read_toolchain

_URL = re.compile(r"https://[A-Za-z0-9.-]+(/[A-Za-z0-9._~%/+#?=&:,-]*)?")
_TRIPLE = re.compile(r"[a-z0-9_]+(-[a-z0-9_.]+){1,3}")
_FLAG = re.compile(r"-[mf][A-Za-z0-9=+._-]+")
_QEMU_WORD = re.compile(r"[a-z0-9][a-z0-9._-]*")
_QEMU_CPU = re.compile(rf"{_QEMU_WORD.pattern}(,[a-z0-9._-]+=[a-z0-9]+)*")
_REGION_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


@dataclass(frozen=True)
class Offload:
    """The backends that may take regions of a model.

    They are tried in the order of `default`, unless the user gives another. Only those in `allowed`
    may be used.
    """

    default: tuple[str, ...]
    allowed: tuple[str, ...]
    settings: OffloadSettings = field(default_factory=OffloadSettings)


@dataclass(frozen=True)
class MemoryRegion:
    """Memory at an address, for a microcontroller's linker script."""

    name: str
    start: int
    size: int
    use: Literal["code", "data"]


@dataclass(frozen=True)
class Memory:
    """The bytes that a model and its program may use. A board with a disk has no flash budget."""

    ram: int
    flash: int | None
    regions: tuple[MemoryRegion, ...] = ()


Engine = Literal["wasmtime", "node"]


@dataclass(frozen=True)
class Transport:
    """How such a board is reached. The address of a single one is in its device entry."""

    kind: TransportKind
    baud: int | None = None
    engines: tuple[Engine, ...] = ()
    """The programs that run the models of such a board, the usual one first."""


@dataclass(frozen=True)
class Twin:
    """The QEMU machine that emulates the board."""

    emulator: str
    machine: str
    cpu: str
    memory: int | None
    clock: int | None = None
    """The clock of a microcontroller's timer in Hz: QEMU's machines have their own."""


@dataclass(frozen=True)
class Board(HasKind):
    """A kind of board."""

    name: str
    title: str
    kind: BoardKind
    vendor_url: str
    cpu: Cpu
    target: Target
    toolchain: str
    offload: Offload
    memory: Memory
    transport: Transport
    twin: Twin | None
    firmware: Firmware | None
    """The firmware; None if edgekit has none: then models are C for the user's own project."""
    flash: Flash | None
    gpu: Gpu | GpuLimits | None
    """The GPU, if the profile names one."""
    origin: Path
    """The profile's path. It differs between hosts and is no part of the board's identity."""
    folder: Path | None = field(default=None, compare=False, metadata=INTERNAL)
    """The folder of the workspace whose profiles go first; None without a workspace."""


def board_names(folder: Path | None = None) -> tuple[str, ...]:
    """List the names of all boards without opening a file."""
    return profile_names("boards", folder)


def load_board(name: str, folder: Path | None = None) -> Board:
    """Read the board of that name to use it. "local" gets the CPU of this host.

    The profiles of a workspace's `folder` go first.
    """
    return load_profile(
        find_profile("boards", name, folder), "boards", partial(parse_board, folder=folder)
    )


def toolchain_of(board: Board) -> Toolchain:
    """Read the toolchain of a board to use it."""
    return load_toolchain(board.toolchain, board.folder)


def check_board(path: Path, folder: Path | None = None) -> tuple[Problem, ...]:
    """List everything wrong with a board profile and its toolchain on this host."""
    return examine_profile(path, "boards", partial(_parse_with_toolchain, folder=folder))[1]


def _parse_with_toolchain(reader: TableReader, path: Path, folder: Path | None) -> Board:
    board = parse_board(reader, path, folder)
    if board.toolchain and board.target.triple:
        expected = f"a toolchain for {architecture(board.target.triple)}"
        try:
            made = architecture(read_toolchain(board.toolchain, folder).triple)
        except ProfileError as error:
            reader.complain("toolchain", f"{show(board.toolchain)} ({error.message})", expected)
        else:
            if made != architecture(board.target.triple):
                found = f"{show(board.toolchain)}, which makes code for {made}"
                reader.complain("toolchain", found, expected)
    return board


def parse_board(reader: TableReader, path: Path, folder: Path | None = None) -> Board:
    """Parse a profile. Faults are added to the reader's problems.

    Its toolchain may be a profile of a workspace's `folder`.
    """
    title = reader.text("title", limit=80)
    kind = reader.choice("kind", KINDS)
    traits = KINDS.get(kind)
    is_host = traits is not None and traits.is_host
    vendor_url = "" if is_host else reader.matching("vendor_url", _URL, "an https:// link")
    toolchain = reader.choice("toolchain", profile_names("toolchains", folder))
    gpu = parse_gpu(reader.table("gpu")) if _may_have_gpu(traits) and reader.has("gpu") else None
    if is_host:
        cpu, target = this_cpu()
        if gpu is not None:
            rest = reader.table("target")
            target = target.with_rest(parse_rest(rest, gpu))
            rest.finish()
        memory = Memory(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None)
    else:
        cpu = _parse_cpu(reader.table("cpu"), traits)
        target = _parse_target(reader.table("target"), traits, cpu, gpu)
        memory = _parse_memory(reader.table("memory"), traits)
    return Board(
        name=path.stem,
        title=title,
        kind=cast(BoardKind, kind),
        vendor_url=vendor_url,
        cpu=cpu,
        target=target,
        toolchain=toolchain,
        offload=_parse_offload(reader.table("offload")),
        memory=memory,
        transport=_parse_transport(reader.table("transport"), traits),
        twin=_parse_twin(reader, cpu.arch) if _may_have_twin(traits, reader) else None,
        firmware=parse_firmware(reader.table("firmware"))
        if _has(reader, traits, "firmware")
        else None,
        flash=parse_flash(reader.table("flash")) if _has(reader, traits, "flash") else None,
        gpu=gpu,
        origin=path,
        folder=folder,
    )


def _may_have_gpu(traits: Traits | None) -> bool:
    return traits is not None and traits.transport in ("ssh", "local")


def _may_have_twin(traits: Traits | None, reader: TableReader) -> bool:
    is_board = traits is None or not (traits.is_host or traits.in_engine)
    return is_board and reader.has("twin")


def _has(reader: TableReader, traits: Traits | None, table: str) -> bool:
    """Return whether a table of microcontrollers is present. Other boards may not have it."""
    return (traits is None or not traits.has_os) and reader.has(table)


def _parse_cpu(reader: TableReader, traits: Traits | None) -> Cpu:
    arch = reader.choice("arch", _architectures(traits))
    name = reader.text("name", limit=60)
    known = architectures().get(arch)
    features = reader.choices("features", known.flags if known else (), f"a feature of {arch}")
    cores = reader.integer("cores", 1, 1024)
    flags: tuple[str, ...] = ()
    if reader.has("compile_flags"):
        flags = reader.texts("compile_flags", _FLAG, "a flag such as -mcpu=cortex-m4")
    reader.finish()
    return Cpu(name, arch, features, cores, flags)


def _architectures(traits: Traits | None) -> list[str]:
    """Return the names of the architectures that a board of such a kind may have."""
    known = architectures().items()
    return [
        name
        for name, one in known
        if traits is None or (one.has_os, one.in_engine) == (traits.has_os, traits.in_engine)
    ]


def _parse_target(
    reader: TableReader, traits: Traits | None, cpu: Cpu, gpu: Gpu | GpuLimits | None
) -> Target:
    target_kind = reader.choice("kind", [traits.target] if traits else get_args(TargetKind))
    triple = reader.matching("triple", _TRIPLE, "a triple such as aarch64-linux-gnu")
    known = architectures().get(cpu.arch)
    names = known.llvm.cpus if known else ()
    llvm_cpu = reader.choice("cpu", names, f"LLVM's name for a {cpu.arch} CPU")
    features: tuple[str, ...] = ()
    if target_kind != "c" and reader.has("features"):
        names = known.features_of_profiles if known else ()
        signed = [sign + feature for sign in "+-" for feature in names]
        features = reader.choices(
            "features", signed, f"LLVM's name for a feature of {cpu.arch} after + or -"
        )
    rest = parse_rest(reader, gpu) if _may_have_gpu(traits) else None
    reader.finish()
    return Target(target_kind, triple, llvm_cpu, features, cpu.cores).with_rest(rest)


def _parse_memory(reader: TableReader, traits: Traits | None) -> Memory:
    ram = reader.size("ram")
    if traits.has_os if traits else not reader.has("flash"):
        reader.finish()
        return Memory(ram, None)
    flash = reader.size("flash")
    regions = tuple(_parse_region(table) for table in reader.tables("region"))
    for key, use, budget in (("ram", "data", ram), ("flash", "code", flash)):
        room = sum(region.size for region in regions if region.use == use)
        if budget > room:
            reader.complain(
                key,
                format_size(budget),
                f'at most the {format_size(room)} of the regions for use = "{use}"',
            )
    _complain_of_overlaps(reader, regions)
    reader.finish()
    return Memory(ram, flash, regions)


def _parse_region(reader: TableReader) -> MemoryRegion:
    name = reader.matching("name", _REGION_NAME, NAME_EXPECTED)
    start = reader.integer("start", 0, 0xFFFF_FFFF)
    size = reader.size("size")
    use = cast('Literal["code", "data"]', reader.choice("use", ("code", "data")))
    if start + size > 1 << 32:
        reader.complain("size", format_size(size), "an end within 4 GiB")
    reader.finish()
    return MemoryRegion(name, start, size, use)


def _complain_of_overlaps(reader: TableReader, regions: tuple[MemoryRegion, ...]) -> None:
    in_order = sorted(regions, key=lambda region: region.start)
    for low, high in itertools.pairwise(in_order):
        if low.start + low.size > high.start:
            expected = "regions that do not overlap"
            reader.complain("region", f'"{low.name}" reaching into "{high.name}"', expected)
    names = [region.name for region in regions if region.name]
    for name in sorted({name for name in names if names.count(name) > 1}):
        reader.complain("region", f'two called "{name}"', "a name for each")


def _parse_offload(reader: TableReader) -> Offload:
    names = tuple(own_backends())  # a backend of another package declares its own boards
    allowed = reader.choices("allowed", names)
    default = reader.choices("default", names)
    for backend in default:
        if backend not in allowed:
            reader.complain("default", show(backend), "only what offload.allowed lists")
    settings = parse_settings(reader)
    reader.finish()
    return Offload(default, allowed, settings)


def _parse_transport(reader: TableReader, traits: Traits | None) -> Transport:
    transport = reader.choice("kind", [traits.transport] if traits else get_args(TransportKind))
    baud = reader.integer("baud", 1200, 12_000_000) if transport == "serial" else None
    engines: tuple[str, ...] = ()
    if transport == "engine":
        engines = reader.choices("engines", get_args(Engine), "an engine")
        if not engines:
            reader.complain("engines", "[]", "at least one engine")
    reader.finish()
    return Transport(cast(TransportKind, transport), baud, cast("tuple[Engine, ...]", engines))


def _emulators(arch: str) -> list[str]:
    known = architectures()
    return [one.qemu.system for one in ([known[arch]] if arch in known else known.values())]


def _parse_twin(parent: TableReader, arch: str) -> Twin:
    known = architectures().get(arch)
    has_clock = known is not None and not known.has_os
    reader = parent.table("twin")
    emulator = reader.choice("emulator", _emulators(arch))
    machine = reader.matching("machine", _QEMU_WORD, "a machine of QEMU's")
    cpu = reader.matching("cpu", _QEMU_CPU, "a CPU of QEMU's")
    memory = reader.size("memory") if reader.has("memory") else None
    clock = reader.integer("clock", 1_000_000, 2_000_000_000) if has_clock else None
    reader.finish()
    return Twin(emulator, machine, cpu, memory, clock)
