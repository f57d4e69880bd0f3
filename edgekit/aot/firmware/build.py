"""Build models in C into a firmware for a board, with the board's own compiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgekit.aot.firmware.firmware_file import FirmwareFile, read_firmware
from edgekit.aot.firmware.generated import config_header, models_source
from edgekit.aot.firmware.memory import layout_of, linker_script
from edgekit.aot.firmware.tree import CTree, read_tree
from edgekit.base.errors import BuildError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors
from edgekit.base.wording import size
from edgekit.cross.toolchain import find_compiler
from edgekit.cross.tools import run_tool
from edgekit.profiles.board import Board
from edgekit.profiles.hardware import Firmware as Hardware
from edgekit.profiles.toolchain import Toolchain

FIRMWARE_NAME = "firmware.elf"
Protocol = Literal["serve", "energyrunner"]
"""What a firmware speaks on its line: edgekit's own protocol, or that of EEMBC's EnergyRunner."""
_SOURCE = Path(__file__).parent / "source"
_STRICT = ("-Wall", "-Wextra", "-Werror")
_OVERFLOW = re.compile(r"region [`'\"]?([A-Za-z0-9_]+)'? overflowed by ([0-9]+) bytes")
_WILL_NOT_FIT = re.compile(r"will not fit in region [`'\"]?([A-Za-z0-9_]+)")


@dataclass(frozen=True)
class Firmware:
    """A program for one board that holds models and answers on a serial line."""

    elf: Path
    build_id: str
    flash: int
    """Bytes of code and data in the board's flash."""
    ram: int
    """Bytes of RAM: arena, stack and variables."""
    arena: int
    stack: int


def build_firmware(
    trees: Sequence[Path],
    board: Board,
    toolchain: Toolchain,
    folder: Path,
    events: Events = SILENT,
    protocol: Protocol = "serve",
) -> Firmware:
    """Compile and link into `folder`, which keeps the compiled files; raise BuildError where the
    models don't fit."""
    hardware = board.firmware
    if hardware is None:
        raise UsageError(
            f"edgekit has no firmware for the board {board.name}",
            hint="add [firmware] to its profile, or use the bundle's C in a project of your own",
        )
    compiler = find_compiler(toolchain)
    models = tuple(read_tree(tree.resolve()) for tree in trees)
    _refuse_twins(models)
    arena = max((tree.arena for tree in models), default=0)
    with storage_errors("write the firmware", folder):
        work = folder.resolve() / "firmware"
        work.mkdir(parents=True, exist_ok=True)
        (work / "config.h").write_text(config_header(board, hardware, max(arena, 16)))
        (work / "models.c").write_text(models_source(models))
        script = linker_script(board, layout_of(board), hardware.stack)
        (work / "memory.ld").write_text(script)
    machine = (*toolchain.compile_flags, *toolchain.spelled(board.cpu.compile_flags))
    job = _Job(compiler.command, machine, work, models)
    units = _units(job, board, hardware, protocol)
    with events.stage("compile the firmware", total=len(units)) as stage:
        for unit in units:
            run_tool(unit.command, folder=work, doing=f"compile {unit.name}")
            stage.advance(detail=unit.name)
        elf = folder / FIRMWARE_NAME
        _link(job, units, toolchain, board, elf)
        file = read_firmware(elf)
        firmware = _described(elf, file, arena, hardware.stack)
        stage.result = f"{size(firmware.flash)} of flash, {size(firmware.ram)} of RAM"
    return firmware


@dataclass(frozen=True)
class _Job:
    compiler: tuple[str, ...]
    machine: tuple[str, ...]
    work: Path
    trees: tuple[CTree, ...]

    @property
    def renamed(self) -> tuple[str, ...]:
        """Options that hide build paths, which are no part of the result."""
        folders = [(self.work, "firmware"), (_SOURCE, "edgekit")]
        folders += [(tree.folder, tree.name) for tree in self.trees]
        return tuple(f"-ffile-prefix-map={folder}={name}" for folder, name in folders)


@dataclass(frozen=True)
class _Unit:
    name: str
    object: str
    command: tuple[str, ...]


def _units(job: _Job, board: Board, hardware: Hardware, protocol: Protocol) -> tuple[_Unit, ...]:
    own = [_SOURCE / f"{name}.c" for name in ("start", "frame", protocol)]
    own.append(_SOURCE / "machines" / f"{board.cpu.arch}.c")
    own.append(_SOURCE / "families" / f"{hardware.family}.c")
    own_flags = ("-std=c99", "-Os", *_STRICT, f"-I{job.work}", f"-I{_SOURCE}")
    units = [_unit(job, _SOURCE, path, "edgekit", own_flags) for path in own]
    every = tuple(f"-I{tree.folder}" for tree in job.trees)
    units.append(_unit(job, job.work, job.work / "models.c", "edgekit", (*own_flags, *every)))
    for tree in job.trees:
        includes = tuple(f"-I{path}" for path in tree.includes)
        # Not ISO mode, in which GCC leaves a * b + c two instructions.
        flags = ("-std=gnu99", "-O3", *_STRICT, *includes)
        units += [_unit(job, tree.folder, path, tree.name, flags) for path in tree.sources]
        # Warnings in third-party sources are their authors' concern.
        library = ("-std=gnu99", "-O3", "-w", *includes)
        units += [
            _unit(job, tree.folder, path, tree.name, library) for path in tree.library_sources
        ]
    return tuple(units)


def _unit(job: _Job, root: Path, source: Path, group: str, flags: tuple[str, ...]) -> _Unit:
    relative = source.relative_to(root).as_posix()
    target = f"{group}-{relative.removesuffix('.c').replace('/', '-')}.o"
    command = (
        *job.compiler,
        *job.machine,
        *flags,
        *("-g", *job.renamed),
        *("-c", str(source), "-o", target),
    )
    return _Unit(relative, target, command)


def _link(job: _Job, units: Sequence[_Unit], toolchain: Toolchain, board: Board, elf: Path) -> None:
    command = (
        *job.compiler,
        *job.machine,
        *(unit.object for unit in dict.fromkeys(units)),
        *("-nostartfiles", *_libc(toolchain), "-Tmemory.ld"),
        *("-Wl,--build-id=sha1", "-Wl,--gc-sections", *toolchain.link_flags),
        *("-lm", "-o", str(elf.resolve())),
    )
    try:
        run_tool(command, folder=job.work, doing="link the firmware")
    except BuildError as error:
        raise _too_large(error, board) from error


def _libc(toolchain: Toolchain) -> tuple[str, ...]:
    """Choose newlib's small form, unless the toolchain names another C library."""
    flags = (*toolchain.compile_flags, *toolchain.link_flags)
    named = any(re.match(r"--?specs=", flag) for flag in flags)
    return () if named else ("--specs=nano.specs", "--specs=nosys.specs")


def _too_large(error: BuildError, board: Board) -> BuildError:
    said = "\n".join((error.message, *error.details))
    over = {name: int(count) for name, count in _OVERFLOW.findall(said)}
    names = {region.name.replace("-", "_"): region for region in board.memory.regions}
    for name in (*over, *_WILL_NOT_FIT.findall(said)):
        region = names.get(name)
        if region is None:
            continue
        what = "weights and code" if region.use == "code" else "arena and stack"
        by = f" by {size(over[name])}" if name in over else ""
        return BuildError(
            f"the model does not fit on {board.name}: {what} exceed the "
            f"{size(region.size)} of {region.name}{by}",
            hint="quantise it to int8, choose a smaller model or input, or a larger board",
            details=error.details,
        )
    return error


def _described(elf: Path, file: FirmwareFile, arena: int, stack: int) -> Firmware:
    return Firmware(
        elf=elf,
        build_id=file.build_id,
        flash=sum(segment.file_size for segment in file.segments),
        ram=file.ram,
        arena=arena,
        stack=stack,
    )


def _refuse_twins(models: Sequence[CTree]) -> None:
    names = [tree.name for tree in models]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"two models of one firmware are called {name}",
                hint="give one of them another prefix",
            )
