"""Builds a bundle from a model file: imports, compiles, links and writes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.aot.memory_map import MemoryMap, bare_metal_boards, memory_map
from edgekit.aot.names import is_identifier
from edgekit.aot.packages.static_library import find_archiver
from edgekit.backends.base import Decision
from edgekit.backends.compile import compile_regions
from edgekit.backends.runners import make_runners
from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import replace_directory, storage_errors
from edgekit.building.build_c import finish_tree, tree_job
from edgekit.building.build_manifest import manifest_for
from edgekit.building.compilation import (
    Compilation,
    CompiledModel,
    CompileJob,
    ImportedModel,
    compiling_in_process,
)
from edgekit.building.compile_process import compiling_in_child
from edgekit.building.expectation import (
    Expectation,
    check_preprocess,
    expect,
    write_reference,
)
from edgekit.building.key import build_key
from edgekit.building.reference_vectors import NAN, Edges
from edgekit.building.request import BuildRequest
from edgekit.building.reuse import Order, make, reuse_or_make
from edgekit.bundle.folder import (
    LIBRARY_NAME,
    Bundle,
    describe_file,
    foreign_file,
    open_bundle,
    write_archive,
    write_manifest,
)
from edgekit.bundle.manifest import Kernel, Region
from edgekit.bundle.manifest_runners import RunnerEntry
from edgekit.cross.link import Linker, link_shared_library
from edgekit.cross.runtime import cuda_runtime
from edgekit.cross.toolchain import Compiler, find_compiler
from edgekit.devices.elf import weight_bytes
from edgekit.profiles.board import Board
from edgekit.profiles.cpu import architecture
from edgekit.profiles.toolchain import Toolchain

if TYPE_CHECKING:
    from edgekit.aot.job import WrittenTree
    from edgekit.building.expectation import Ends


@dataclass(frozen=True)
class BuildResult:
    bundle: Bundle
    from_cache: bool
    seconds: float
    archive: Path | None
    weight_bytes: int
    """Bytes of weights in the library. A start maps them and does not copy them."""
    memory_map: MemoryMap | None = None
    """The memory map of a model in C, if requested."""


def build(
    request: BuildRequest,
    out: Path,
    *,
    archive: bool = False,
    dump_ir: Path | None = None,
    use_cache: bool = True,
    isolated: bool = True,
    with_memory_map: bool = False,
    events: Events = SILENT,
) -> BuildResult:
    """Build a bundle in the folder `out`. With `archive`, also write it as `out`.zip.

    An existing bundle at `out` is replaced in one step, and kept if anything fails. With `dump_ir`
    the compiler runs even if the result is cached. Without `isolated` the compiler runs in this
    process: quicker for many small models, but a crash ends the caller.
    """
    started = time.perf_counter()
    _check_for_c(request, with_memory_map)
    check_toolchain(request.board, request.toolchain)
    check_destination(out, request.board.folder)
    compiler = find_compiler(request.toolchain)
    compiling = compiling_in_child if isolated else compiling_in_process
    with ExitStack() as replacing:
        with storage_errors("write the bundle", out):
            folder = replacing.enter_context(replace_directory(out))
        work = _Work(request, compiler, folder, dump_ir, events, compiling)
        order = Order(
            key=build_key(request, compiler),
            title=f"{request.source.name} for {request.board.name}",
            folder=folder,
            make=lambda scratch: _make(work, scratch),
        )
        if use_cache:
            from_cache = reuse_or_make(order, remake=dump_ir is not None, events=events)
        else:
            from_cache = False
            make(order)
        with storage_errors("put the bundle in place", out):
            replacing.close()
    bundle = open_bundle(out)
    is_linux = bundle.manifest.bare_metal is None
    if is_linux and request.offload.backends and not bundle.manifest.regions:
        names = ", ".join(request.offload.backends)
        events.warn(f"nothing went to {names}; edgekit partition says why")
    zipped = out.resolve().with_name(out.resolve().name + ".zip")
    if archive:
        write_archive(bundle.path, bundle.manifest, zipped)
    elif zipped.exists():
        events.warn(f"{zipped.name} beside the bundle is older than it; --zip writes it again")
    return BuildResult(
        bundle,
        from_cache,
        time.perf_counter() - started,
        zipped if archive else None,
        weight_bytes(bundle.library) if is_linux else 0,
        _memory_map(bundle, request.board.folder) if with_memory_map else None,
    )


def _memory_map(bundle: Bundle, folder: Path | None) -> MemoryMap | None:
    c = bundle.manifest.bare_metal
    return None if c is None else memory_map(c, bare_metal_boards(folder))


def default_destination(request: BuildRequest) -> Path:
    return Path("build") / f"{request.source.name}-{request.board.name}"


def check_destination(out: Path, workspace: Path | None = None) -> None:
    """Refuse to replace a workspace's folder, or files that no build made, before any work."""
    with storage_errors("look at the output folder", out):
        is_folder = out.is_dir()
        is_other = not is_folder and out.exists()
        foreign = foreign_file(out) if is_folder else None
    if is_other:
        raise UsageError(
            f"{out} is a file, and a bundle is a folder",
            hint="choose another folder with -o; --zip adds a single file beside it",
        )
    if foreign is not None:
        raise UsageError(
            f"{out} holds {foreign!r}, which is no part of a bundle and would be lost",
            hint="choose a folder that is new, empty or a bundle, or move that file away",
        )
    if is_folder and workspace is not None and workspace.resolve().is_relative_to(out.resolve()):
        raise UsageError(
            f"{out} is or holds the folder you are in, and building would replace it",
            hint=f"choose a folder inside it, such as {out / 'bundle'}",
        )
    if is_folder and os.path.ismount(out):
        raise UsageError(
            f"{out} is a mount point, which can't be replaced in one step",
            hint=f"choose a folder inside it, such as {out / 'bundle'}",
        )


def _check_for_c(request: BuildRequest, with_memory_map: bool) -> None:
    """Raise UsageError for options of models in C where this model becomes a library."""
    if with_memory_map and request.board.kind != "baremetal":
        raise UsageError(
            f"--memory-map shows a model in C, and {request.board.name} gets a library",
            hint="leave it out, or choose a bare-metal board; edgekit boards lists them",
        )
    if request.code_format is not None and request.board.kind != "baremetal":
        raise UsageError(
            f"--format says how a model in C is packed, and {request.board.name} gets a library",
            hint="leave it out, or choose a bare-metal board; edgekit boards lists them",
        )
    if request.code_format == "static-lib":
        find_archiver(request.toolchain)
    if request.prefix is None:
        return
    if request.board.kind != "baremetal":
        raise UsageError(
            f"--prefix names a model's functions in C, and {request.board.name} gets a library",
            hint="leave --prefix out, or choose a bare-metal board; edgekit boards lists them",
        )
    if not is_identifier(request.prefix):
        raise UsageError(
            f"{request.prefix!r} can't be what the names of C functions begin with",
            hint="letters, digits and underscores, a letter first, and no word of C's own",
        )


def check_toolchain(board: Board, toolchain: Toolchain) -> None:
    """Raise UsageError if the toolchain's code is for another CPU than the board's."""
    made, needed = architecture(toolchain.triple), architecture(board.target.triple)
    if made != needed:
        raise UsageError(
            f"the toolchain {toolchain.name} makes code for {made}, "
            f"and {board.name} runs code for {needed}",
            hint=f"name another toolchain in {board.origin}; edgekit toolchains lists them"
            if toolchain.name == board.toolchain
            else f"leave --toolchain out: {board.name} has its own, {board.toolchain}",
        )


@dataclass(frozen=True)
class _Work:
    request: BuildRequest
    compiler: Compiler
    folder: Path
    """The folder in which the bundle is made."""
    dump_ir: Path | None
    events: Events
    compiling: Callable[[CompileJob, Events], AbstractContextManager[Compilation]]


def _make(work: _Work, scratch: Path) -> None:
    """Import, compile, link and write the bundle. The oracle runs while TVM compiles."""
    request, events = work.request, work.events
    job = CompileJob(
        request.source,
        request.board.target,
        scratch,
        work.dump_ir,
        request.offload,
        tree_job(request),
        request.choices,
    )
    with work.compiling(job, events) as compilation:
        model = compilation.imported()
        for repair in model.repairs:
            events.note(repair)
        check_preprocess(request.preprocess, model.inputs)
        ends = (model.inputs, model.outputs)
        expectation = expect(
            request.source,
            request.seed,
            ends,
            events,
            Edges(model.index_ranges, request.preprocess, _nan_obstacle(request, model)),
            verified=request.verified,
        )
        compiled = None if job.tree else compilation.compiled()
        tree = compilation.tree() if job.tree else None
    if tree is not None:
        _finish_tree(work, tree, ends, expectation, scratch)
    if compiled is not None:
        _finish_library(work, compiled, ends, expectation, scratch)


def _nan_obstacle(request: BuildRequest, model: ImportedModel) -> str:
    if request.board.target.gpu is not None:
        return "kernels on a GPU may lose NaN"
    return model.nan_obstacle


def _finish_tree(
    work: _Work, tree: WrittenTree, ends: Ends, expectation: Expectation, scratch: Path
) -> None:
    request, folder = work.request, work.folder
    bare_metal, files = finish_tree(
        tree, expectation, request, work.compiler, folder, scratch, work.events
    )
    manifest = manifest_for(
        request,
        work.compiler,
        expectation,
        ends,
        write_reference(folder, ends, expectation),
        files=files,
        bare_metal=bare_metal,
        reproducible=all(_is_free_of(scratch, folder / file.path) for file in files),
    )
    write_manifest(folder, manifest)


def _finish_library(
    work: _Work, compiled: CompiledModel, ends: Ends, expectation: Expectation, scratch: Path
) -> None:
    request, events = work.request, work.events
    library = work.folder / LIBRARY_NAME
    linked = link_model(compiled, request, work.compiler, scratch, library, events)
    libraries = ", ".join(sorted({part.backend for part in compiled.regions}))
    if libraries:
        expectation = expectation.without(NAN, f"{libraries} may lose NaN, or spread it")
    write_bundle(
        request,
        work.compiler,
        work.folder,
        linked,
        ends,
        expectation,
        (_regions_of(compiled), _kernels_of(compiled)),
        reproducible=_is_free_of(scratch, library),
    )


@dataclass(frozen=True)
class Linked:
    """A model as files in a bundle's folder."""

    library: str
    beside: tuple[str, ...]
    """The names of the libraries that it loads."""
    runners: tuple[RunnerEntry, ...]


def link_model(
    compiled: CompiledModel,
    request: BuildRequest,
    compiler: Compiler,
    scratch: Path,
    library: Path,
    events: Events,
) -> Linked:
    """Compile the regions, then link everything into one library.

    Shared libraries that it loads, and sources that the device compiles, are put into its folder.
    """
    linker = Linker.for_board(request.board, request.toolchain, compiler)
    objects = compiled.objects
    beside: tuple[str, ...] = ()
    runners: tuple[RunnerEntry, ...] = ()
    if compiled.regions:
        regions = compile_regions(
            compiled.regions, request.board, request.toolchain, linker, scratch, events
        )
        objects = objects.with_libraries(regions.names, regions.libraries)
        linker = replace(linker, compiler=regions.compiler)
        with storage_errors("write the libraries", library):
            for path in regions.beside:
                shutil.copyfile(path, library.with_name(path.name))
        runners = make_runners(
            compiled.regions,
            request.board,
            request.toolchain,
            linker,
            scratch,
            library.parent,
            events,
        )
        built_on_host = tuple(runner.library for runner in runners if runner.built == "host")
        beside = (*(path.name for path in regions.beside), *built_on_host)
    if request.board.target.gpu is not None:
        runtime = cuda_runtime(request.board.cpu.arch, events)
        with storage_errors("write the libraries", library):
            shutil.copyfile(runtime, library.with_name(runtime.name))
        beside = (*beside, runtime.name)
    with events.stage("link the library") as stage:
        link_shared_library(objects, linker, scratch, library)
        stage.result = f"{library.stat().st_size / 1e6:.1f} MB by {compiler.path.name}"
    return Linked(library.name, beside, runners)


def _regions_of(compiled: CompiledModel) -> tuple[Region, ...]:
    """Return the regions and their operators for the manifest."""
    members: dict[str, list[Decision]] = {}
    for decision in compiled.decisions:
        if decision.region is not None:
            members.setdefault(decision.region, []).append(decision)
    return tuple(
        Region(
            name=symbol,
            backend=decisions[0].backend or "",
            operators=tuple(decision.operator for decision in decisions),
            macs=sum(decision.macs for decision in decisions),
            model_macs=sum(decision.macs for decision in compiled.decisions),
            reason=decisions[0].reason,
        )
        for symbol, decisions in members.items()
    )


def _kernels_of(compiled: CompiledModel) -> tuple[Kernel, ...]:
    measured = dict(compiled.choices)
    return tuple(Kernel(name, rule, measured.get(name, "")) for name, rule in compiled.rules)


def _is_free_of(scratch: Path, library: Path) -> bool:
    """Return whether the library does not contain the name of the scratch folder."""
    return os.fsencode(scratch.name) not in library.read_bytes()


def write_bundle(
    request: BuildRequest,
    compiler: Compiler,
    folder: Path,
    linked: Linked,
    ends: Ends,
    expectation: Expectation,
    insides: tuple[tuple[Region, ...], tuple[Kernel, ...]],
    *,
    reproducible: bool,
) -> None:
    """Write the reference vectors and the manifest next to the libraries of `link_model`.

    `ends` are the inputs and outputs, `insides` the regions and kernels.
    """
    regions, kernels = insides
    files = [describe_file(folder, linked.library, "library")]
    files += [describe_file(folder, name, "shared-library") for name in linked.beside]
    files += [describe_file(folder, one.source, "runner-source") for one in linked.runners]
    reference = write_reference(folder, ends, expectation)
    manifest = manifest_for(
        request,
        compiler,
        expectation,
        ends,
        reference,
        regions=regions,
        runners=linked.runners,
        kernels=kernels,
        files=tuple(files),
        reproducible=reproducible,
    )
    write_manifest(folder, manifest)
