"""Builds a bundle from a model file: imports, compiles, links and writes."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import BundleError, UsageError
from edgekit.base.events import SILENT, Events, StageEnded
from edgekit.base.files import replace_directory, storage_errors
from edgekit.base.options import option
from edgekit.base.own_folder import own_folder, remember_origin
from edgekit.base.varying import without_lengths
from edgekit.building.build_manifest import manifest_for
from edgekit.building.compilation import Compiling, compiling_in_process
from edgekit.building.compile_process import compiling_in_child
from edgekit.building.expectation import expect
from edgekit.building.key import build_key
from edgekit.building.product import Making
from edgekit.building.products import product_of
from edgekit.building.reference_vectors import Edges
from edgekit.building.request import BuildRequest, BuildResult
from edgekit.building.reuse import Order, make, reuse_or_make
from edgekit.bundle.archive import write_archive
from edgekit.bundle.folder import foreign_file, open_bundle, write_manifest
from edgekit.cross.toolchain import find_compiler
from edgekit.models.ends import check_names
from edgekit.profiles.architecture import architecture
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import Toolchain


def build(
    request: BuildRequest,
    out: Path,
    *,
    archive: bool = False,
    dump_ir: Path | None = None,
    use_cache: bool = True,
    isolated: bool = True,
    compiling: Compiling | None = None,
    with_memory_map: bool = False,
    events: Events = SILENT,
) -> BuildResult:
    """Build a bundle in the folder `out`. With `archive`, also write it as `out`.zip.

    An existing bundle at `out` is replaced in one step, and kept if anything fails. With `dump_ir`
    the compiler runs even if the result is cached. Without `isolated` the compiler runs in this
    process: quicker for many small models, but a crash ends the caller. `compiling` replaces both.
    """
    started = time.perf_counter()
    stages: list[StageEnded] = []
    events = events.keeping(stages)
    product = product_of(request.board)
    product.check(request, with_memory_map=with_memory_map)
    check_toolchain(request.board, request.toolchain)
    check_destination(out, request.board.folder)
    _warn_of_another_model(out, request, events)
    compiler = find_compiler(request.toolchain)
    if compiling is None:
        compiling = compiling_in_child if isolated else compiling_in_process
    with ExitStack() as replacing:
        with storage_errors("write the bundle", out):
            folder = replacing.enter_context(replace_directory(out))
        work = _Work(dump_ir, compiling)
        order = Order(
            key=build_key(request, compiler),
            title=f"{request.source.name} for {request.board.name}",
            folder=folder,
            make=lambda scratch: work.make(
                Making(product, request, compiler, folder, scratch, events)
            ),
        )
        if use_cache:
            from_cache = reuse_or_make(order, remake=dump_ir is not None, events=events)
        else:
            from_cache = False
            make(order)
        with storage_errors("put the bundle in place", out):
            replacing.close()
    remember_origin(out, request.source.path)
    bundle = open_bundle(out)
    remark = product.remark(request, bundle.manifest)
    if remark:
        events.warn(remark)
    zipped = out.resolve().with_name(out.resolve().name + ".zip")
    if archive:
        write_archive(bundle.path, bundle.manifest, zipped)
    elif zipped.exists():
        events.warn(
            f"{zipped.name} beside the bundle is older than it; {option('zip')} writes it again"
        )
    return BuildResult(
        bundle,
        from_cache,
        time.perf_counter() - started,
        zipped if archive else None,
        product.weight_bytes(bundle),
        product.memory_map(bundle, request.board) if with_memory_map else None,
        tuple(stages),
    )


def default_destination(request: BuildRequest, start: Path) -> Path:
    """Return the folder for a bundle in the folder `start`; never that of another model."""

    def is_ours(folder: Path) -> bool:
        try:
            return open_bundle(folder).manifest.model.sha256 == request.source.sha256
        except BundleError:
            return True  # `check_destination` decides about it

    name = f"{request.source.name}-{request.board.name}"
    return own_folder(start, name, request.source.path, is_ours)


def check_destination(out: Path, workspace: Path | None = None) -> None:
    """Refuse to replace a workspace's folder, or files that no build made, before any work."""
    with storage_errors("look at the output folder", out):
        is_folder = out.is_dir()
        is_other = not is_folder and out.exists()
        foreign = foreign_file(out) if is_folder else None
    if is_other:
        raise UsageError(
            f"{out} is a file, and a bundle is a folder",
            hint=f"choose another folder with {option('out')}; {option('zip')} adds a single file "
            "beside it",
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


def _warn_of_another_model(out: Path, request: BuildRequest, events: Events) -> None:
    """Warn if the bundle to be replaced is of another model, which may only have the same name."""
    with suppress(BundleError):
        replaced = open_bundle(out).manifest.model
        if replaced.sha256 != request.source.sha256:
            events.warn(
                f"the bundle in {out} was built from another {replaced.file} and is replaced; "
                "choose another folder to keep both"
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
            else f"leave {option('toolchain')} out: {board.name} has its own, {board.toolchain}",
        )


@dataclass(frozen=True)
class _Work:
    """How a bundle is made."""

    dump_ir: Path | None
    compiling: Compiling

    def make(self, making: Making) -> None:
        """Import, compile, link and write the bundle. The oracle runs while TVM compiles."""
        request, product, events = making.request, making.product, making.events
        job = product.job(request, making.scratch, self.dump_ir)
        with self.compiling(job, events) as compilation:
            model = compilation.imported()
            for repair in model.repairs:
                events.note(repair)
            preprocess = request.source.ends.preprocess
            ends = without_lengths(model.inputs, model.outputs)
            check_names(preprocess, [spec.name for spec in ends[0]])
            obstacle = product.nan_obstacle or model.nan_obstacle
            edges = Edges(model.index_ranges, preprocess, obstacle)
            expectation = expect(
                request.source, request.seed, ends, events, edges, verified=request.verified
            )
            compiled = compilation.compiled()
        contents = compiled.finish(making, expectation)
        write_manifest(making.folder, manifest_for(making, ends, contents))
