"""The part of a build that only bare-metal boards have: C, its size and stack, a firmware."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.aot.budget import check_budget
from edgekit.aot.firmware.build import FIRMWARE_NAME, build_firmware
from edgekit.aot.job import OPTIMISATION, TreeJob, WrittenTree
from edgekit.aot.memory_drawing import draw_memory_map
from edgekit.aot.memory_map import bare_metal_boards, memory_map
from edgekit.aot.names import identifier
from edgekit.aot.packages.compiled import CompiledTree
from edgekit.aot.packages.write import write_package
from edgekit.aot.tree import Origin
from edgekit.aot.write import write_vectors
from edgekit.base.errors import BuildError
from edgekit.base.events import Events
from edgekit.base.files import storage_errors
from edgekit.building.expectation import Expectation
from edgekit.bundle.folder import TREE_NAME, BareMetal, FileEntry, describe_file
from edgekit.cross.tools import run_tool
from edgekit.devices.elf import loaded_bytes
from edgekit.version import __version__

if TYPE_CHECKING:
    from edgekit.building.request import BuildRequest
    from edgekit.cross.toolchain import Compiler

MEMORY_MAP_NAME = "memory-map.svg"
_STRICT = ("-std=gnu99", "-Wall", "-Wextra", "-Wconversion", "-Werror")
_FOR_ONE_SHAPE = re.compile(r"ek_\w+_[0-9a-f]{6}(\.|$)")
_FRAME = re.compile(r"^.*:(?P<function>[^:\t]+)\t(?P<bytes>[0-9]+)\t", re.MULTILINE)


def tree_job(request: BuildRequest) -> TreeJob | None:
    """Return the job of writing C; None for boards that load libraries."""
    if request.board.kind != "baremetal":
        return None
    board, source = request.board, request.source
    return TreeJob(
        name=request.prefix or identifier(source.name).lower(),
        origin=Origin(
            source.name,
            source.path.name,
            __version__,
            board.name,
            board.cpu.name,
            _machine_flags(request),
        ),
        cpu=board.cpu,
        memory=board.memory,
        ways=request.ways,
    )


def _machine_flags(request: BuildRequest) -> tuple[str, ...]:
    toolchain = request.toolchain
    return (*toolchain.compile_flags, *toolchain.spelled(request.board.cpu.compile_flags))


def finish_tree(
    tree: WrittenTree,
    expectation: Expectation,
    request: BuildRequest,
    compiler: Compiler,
    folder: Path,
    scratch: Path,
    events: Events,
) -> tuple[BareMetal, tuple[FileEntry, ...]]:
    """Put the C and its reference vectors into the bundle's folder, and compile them."""
    ends = (tree.inputs, tree.outputs)
    # Flash is scarce: the C's own test holds the first vector, and `verify` sends the others.
    usual = expectation.usual
    write_vectors(tree.folder, tree.origin, ends, usual.inputs, usual.outputs, usual.leeways)
    with events.stage("compile the C") as stage:
        compiled = _compiled(tree, request, compiler, scratch)
        report = compiled.report
        stage.result = f"{report.flash_bytes} bytes of flash, {report.stack_bytes} of stack"
    check_budget(report, request.board.memory, request.board.name, is_float=False)
    with storage_errors("write the bundle", folder):
        shutil.copytree(tree.folder, folder / TREE_NAME)
        paths = sorted(path for path in (folder / TREE_NAME).rglob("*") if path.is_file())
    files = [describe_file(folder, path.relative_to(folder).as_posix(), "c-tree") for path in paths]
    if request.board.firmware is not None:
        made = scratch / "firmware"
        firmware = build_firmware([tree.folder], request.board, request.toolchain, made, events)
        with storage_errors("write the bundle", folder):
            shutil.copyfile(firmware.elf, folder / FIRMWARE_NAME)
        files.append(describe_file(folder, FIRMWARE_NAME, "firmware"))
        report = replace(
            report,
            firmware_flash=max(firmware.flash - report.flash_bytes, 0),
            firmware_ram=firmware.ram - firmware.arena,
        )
    if request.code_format is not None:
        added = write_package(request.code_format, compiled, folder, scratch)
        files += [describe_file(folder, path, "package") for path in added]
    drawing = draw_memory_map(memory_map(report, bare_metal_boards(request.board.folder)))
    with storage_errors("write the bundle", folder):
        (folder / MEMORY_MAP_NAME).write_text(drawing, encoding="utf-8")
    files.append(describe_file(folder, MEMORY_MAP_NAME, "memory-map"))
    return report, tuple(files)


def _compiled(
    tree: WrittenTree, request: BuildRequest, compiler: Compiler, scratch: Path
) -> CompiledTree:
    """Compile the C, and add the compiler's sizes of flash and stack to the report."""
    board = request.board
    includes = [f"-I{tree.folder / folder}" for folder in tree.includes]
    flash, frames = 0, dict[str, int]()
    machine = (*_machine_flags(request), OPTIMISATION)
    objects = []
    for index, source in enumerate(tree.sources):
        made = scratch / f"c-{index}.o"
        run_tool(
            [
                *compiler.command,
                *machine,
                # Only the model's own C has to be free of warnings, not a library's.
                *(_STRICT if index == 0 else ("-std=gnu99", "-w")),
                "-fstack-usage",
                *includes,
                "-c",
                str(tree.folder / source),
                "-o",
                str(made),
            ],
            folder=scratch,
            doing="compile the model's C",
        )
        objects.append(made)
        read, written = loaded_bytes(made)
        flash += read
        if written:
            raise BuildError(
                f"{source} has {written} bytes of variables of its own",
                hint="this is a fault of edgekit: please report it with the model",
            )
        frames |= _frames(made.with_suffix(".su"))
    report = replace(tree.report, flash_bytes=flash, stack_bytes=_deepest(tree, frames))
    return CompiledTree(
        tree=tree,
        report=report,
        model_sha256=request.source.sha256,
        board=board,
        toolchain=request.toolchain,
        compiler=compiler,
        flags=machine,
        objects=tuple(objects),
    )


def _frames(usage: Path) -> dict[str, int]:
    """Return bytes of stack by function; empty if the compiler reports none."""
    if not usage.is_file():
        return {}
    text = usage.read_text(encoding="utf-8", errors="replace")
    return {match["function"]: int(match["bytes"]) for match in _FRAME.finditer(text)}


def _deepest(tree: WrittenTree, frames: dict[str, int]) -> int:
    """Return the deepest stack of a run.

    NAME_run calls NAME_run_step, which calls one step, which calls one function for its shape. All
    functions of libraries are counted.
    """
    name = tree.report.name
    above = [frames.pop(f"{name}_{word}", 0) for word in ("run", "run_step")]
    steps = [frames.pop(step.name, 0) for step in tree.report.steps]
    shapes = [frames.pop(function) for function in [*frames] if _FOR_ONE_SHAPE.match(function)]
    deepest = max(steps, default=0) + max(shapes, default=0)
    return sum(above) + deepest + sum(frames.values())
