"""A program in C, which a board without an operating system gets: for a project or a firmware."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.aot.budget import check_budget
from edgekit.aot.firmware.build import FIRMWARE_NAME, build_firmware
from edgekit.aot.job import OPTIMISATION, TreeJob, WrittenTree
from edgekit.aot.memory_drawing import draw_memory_map
from edgekit.aot.memory_map import MemoryMap, bare_metal_boards, memory_map
from edgekit.aot.names import identifier, is_identifier
from edgekit.aot.packages.compiled import CompiledTree
from edgekit.aot.packages.static_library import find_archiver
from edgekit.aot.packages.write import write_package
from edgekit.aot.tree import Origin
from edgekit.aot.write import write_vectors
from edgekit.backends.base import OptionValue
from edgekit.backends.plan import OffloadPlan
from edgekit.backends.registry import kernel_backend_names, load_kernel_backend
from edgekit.base.errors import BuildError, EdgekitError, OffloadRefusedError, UsageError
from edgekit.base.events import Events, Stage
from edgekit.base.files import copy_tree, storage_errors
from edgekit.base.options import option
from edgekit.base.wording import counted, exact_size
from edgekit.building.product import (
    Compiled,
    CompileJob,
    Contents,
    Making,
    OffloadWishes,
    Product,
    Words,
)
from edgekit.building.tuned_steps import measured_ways
from edgekit.bundle.folder import TREE_NAME, describe_file
from edgekit.cross.tools import run_tool
from edgekit.devices.elf import loaded_bytes
from edgekit.profiles.offload import AUTO
from edgekit.version import __version__

if TYPE_CHECKING:
    from edgekit.building.expectation import Expectation
    from edgekit.building.request import BuildRequest
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import Manifest
    from edgekit.models.model import Model
    from edgekit.profiles.board import Board

MEMORY_MAP_NAME = "memory-map.svg"
_STRICT = ("-std=gnu99", "-Wall", "-Wextra", "-Wconversion", "-Werror")
_FOR_ONE_SHAPE = re.compile(r"ek_\w+_[0-9a-f]{6}(\.|$)")
_FRAME = re.compile(r"^.*:(?P<function>[^:\t]+)\t(?P<bytes>[0-9]+)\t", re.MULTILINE)


@dataclass(frozen=True)
class ProgramJob(CompileJob):
    tree: TreeJob
    offload: OffloadPlan

    def compile(self, model: Model, events: Events) -> CompiledProgram:
        from edgekit.aot.compile import compile_to_tree
        from edgekit.compiler.phases import dumper

        libraries = [
            load_kernel_backend(name).generator(self.offload.options.get(name, {}))
            for name in self.offload.backends
        ]
        dump = dumper(self.dump_ir)
        return CompiledProgram(
            compile_to_tree(model, self.tree, libraries, self.scratch, dump, events)
        )


@dataclass(frozen=True)
class CompiledProgram(Compiled):
    """C without its reference vectors."""

    tree: WrittenTree

    def finish(self, making: Making, expectation: Expectation) -> Contents:
        """Put the C and its reference vectors into the bundle's folder, and compile them."""
        tree, request, folder = self.tree, making.request, making.folder
        ends = (tree.inputs, tree.outputs)
        # Flash is scarce: the C's own test holds the first vector, and `verify` sends the others.
        usual = expectation.usual
        write_vectors(tree.folder, tree.origin, ends, usual.inputs, usual.outputs, usual.leeways)
        with making.events.stage("compile the C", total=len(tree.sources)) as stage:
            compiled = _compiled(tree, making, stage)
            report = compiled.report
            stage.result = (
                f"{counted(report.flash_bytes, 'byte')} of flash, {report.stack_bytes:,} of stack"
            )
        check_budget(report, _tree_job(request), is_float=False)
        with storage_errors("write the bundle", folder):
            copy_tree(tree.folder, folder / TREE_NAME)
            paths = sorted(path for path in (folder / TREE_NAME).rglob("*") if path.is_file())
        names = [path.relative_to(folder).as_posix() for path in paths]
        files = [describe_file(folder, name, "c-tree") for name in names]
        if request.board.firmware is not None:
            made = making.scratch / "firmware"
            firmware = build_firmware(
                [tree.folder], request.board, request.toolchain, made, making.events
            )
            with storage_errors("write the bundle", folder):
                shutil.copyfile(firmware.elf, folder / FIRMWARE_NAME)
            files.append(describe_file(folder, FIRMWARE_NAME, "firmware"))
            report = replace(
                report,
                firmware_flash=max(firmware.flash - report.flash_bytes, 0),
                firmware_ram=firmware.ram - firmware.arena,
            )
        if request.code_format is not None:
            added = write_package(request.code_format, compiled, folder, making.scratch)
            files += [describe_file(folder, path, "package") for path in added]
        drawing = draw_memory_map(memory_map(report, bare_metal_boards(request.board.folder)))
        with storage_errors("write the bundle", folder):
            (folder / MEMORY_MAP_NAME).write_text(drawing, encoding="utf-8")
        files.append(describe_file(folder, MEMORY_MAP_NAME, "memory-map"))
        return Contents(tuple(files), expectation, bare_metal=report)


class ProgramInC(Product):
    in_words = "a model in C"
    own_option = "edgekit's kernels"
    tuner = "steps"
    needs_outputs = True
    probe_flags = ("-c",)
    fixed_sizes = "runs the model in C, where every size is fixed"
    int8_reason = "what microcontrollers are fast at"

    def check(self, request: BuildRequest, *, with_memory_map: bool) -> None:
        if request.code_format == "static-lib":
            find_archiver(request.toolchain)
        if request.prefix is not None and not is_identifier(request.prefix):
            raise UsageError(
                f"{request.prefix!r} can't be what the names of C functions begin with",
                hint="letters, digits and underscores, a letter first, and no word of C's own",
            )

    def plan(self, board: Board, wishes: OffloadWishes) -> OffloadPlan:
        """Plan which libraries' kernels may be used; by default those of the board's profile."""
        asked = wishes.project.backends if wishes.asked is None else wishes.asked
        usable = kernel_backend_names()
        options = _options(board, wishes, usable)
        if asked is None or asked == AUTO:
            names = tuple(name for name in board.offload.default if name in usable)
            return OffloadPlan(names, options)
        for name in asked:
            if name not in board.offload.allowed or name not in usable:
                known = ", ".join(n for n in board.offload.allowed if n in usable)
                own = f"leave {option('offload')} out: edgekit has its own"
                raise OffloadRefusedError(
                    f"models in C for {board.name} can't use kernels of {name}",
                    hint=f"there is {known}" if known else own,
                )
            load_kernel_backend(name).require(options.get(name, {}))
        return OffloadPlan(asked, options)

    def with_measured(self, request: BuildRequest, events: Events, *, twin: bool) -> BuildRequest:
        return replace(
            request, ways=measured_ways(request.board, request.toolchain, request.store, events)
        )

    def offload_identity(self, request: BuildRequest) -> list[object]:
        plan = request.offload
        libraries = [load_kernel_backend(name) for name in plan.backends]
        given = [(b, plan.options.get(b.name, {})) for b in libraries]
        return [
            [b.name, b.identity(options), sorted((k, v) for k, v in options.items() if k != "path")]
            for b, options in given
        ]

    def board_identity(self, board: Board) -> list[object]:
        """Return the memory, the firmware's settings, and the boards of the memory map."""
        firmware = None if board.firmware is None else asdict(board.firmware)
        others = bare_metal_boards(board.folder)
        shown = [[b.name, b.cpu.name, b.memory.ram, b.memory.flash] for b in others]
        return [asdict(board.memory), firmware, board.transport.baud, shown]

    def job(self, request: BuildRequest, scratch: Path, dump_ir: Path | None) -> ProgramJob:
        return ProgramJob(request.source, scratch, dump_ir, _tree_job(request), request.offload)

    def memory_map(self, bundle: Bundle, board: Board) -> MemoryMap | None:
        c = bundle.manifest.bare_metal
        return None if c is None else memory_map(c, bare_metal_boards(board.folder))

    def memory_needs(self, model: Model, board: Board) -> tuple[int, int] | None:
        """Plan the arena with kernels that every CPU runs."""
        from edgekit.aot.compile import compile_tree
        from edgekit.aot.generators import portable_generators

        origin = Origin("model", "model", "", board.name, board.cpu.name)
        job = TreeJob("model", origin, board.cpu)
        try:
            plan = compile_tree(model, job, portable_generators()).plan
        except EdgekitError:
            return None
        constants = sum(c.array.nbytes for kernel in plan.kernels for c in kernel.constants)
        return plan.arena.bytes, constants

    def size_in_words(self, manifest: Manifest, weight_bytes: int) -> Words:
        return self.content_in_words(manifest)

    def content_in_words(self, manifest: Manifest) -> Words:
        """Describe what a model in C takes, and which generators made its steps."""
        c = manifest.bare_metal
        assert c is not None
        makers = Counter(step.maker for step in c.steps).most_common()
        steps = ", ".join(f"{count} by {maker}" for maker, count in makers)
        pairs = [
            ("steps", f"{len(c.steps)} ({steps})"),
            ("arena", f"{exact_size(c.arena_bytes)}; {c.arena_bound:,} are alive at one step"),
            ("flash", f"{exact_size(c.flash_bytes)}, {c.constant_bytes:,} of them constants"),
            ("stack", exact_size(c.stack_bytes)),
        ]
        floats = [f"{step.name}: {step.reason}" for step in c.steps if step.reason]
        return [*pairs, *([("in floats", "; ".join(floats))] if floats else [])]


def _options(
    board: Board, wishes: OffloadWishes, names: tuple[str, ...]
) -> dict[str, dict[str, OptionValue]]:
    """Return each library's options: those of the profile, changed by those of the project."""
    files = (board.offload.settings.options, wishes.project.settings.options)
    options = {
        name: {key: value for file in files for key, value in file.get(name, {}).items()}
        for name in names
    }
    for name, path in wishes.library_paths.items():
        options.setdefault(name, {})["path"] = str(path)
    return {name: own for name, own in options.items() if own}


def _tree_job(request: BuildRequest) -> TreeJob:
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
        shapes_chosen=bool(source.shapes),
    )


def _machine_flags(request: BuildRequest) -> tuple[str, ...]:
    toolchain = request.toolchain
    return (*toolchain.compile_flags, *toolchain.spelled(request.board.cpu.compile_flags))


def _compiled(tree: WrittenTree, making: Making, stage: Stage) -> CompiledTree:
    """Compile the C, and add the compiler's sizes of flash and stack to the report."""
    request, compiler, scratch = making.request, making.compiler, making.scratch
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
                f"{source} has {counted(written, 'byte')} of variables of its own",
                hint="this is a fault of edgekit: please report it with the model",
            )
        frames |= _frames(made.with_suffix(".su"))
        stage.advance()
    report = replace(tree.report, flash_bytes=flash, stack_bytes=_deepest(tree, frames))
    return CompiledTree(
        tree=tree,
        report=report,
        model_sha256=request.source.sha256,
        board=request.board,
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
