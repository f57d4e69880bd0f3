"""A library of machine code, which a board with an operating system loads."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.base import Backend, Decision, Options
from edgekit.backends.codegen import RegionFiles, write_regions
from edgekit.backends.compile import Workbench, compile_regions
from edgekit.backends.leftovers import cost_in_words
from edgekit.backends.plan import OffloadPlan, chosen_backend, plan_offload, selection_of
from edgekit.backends.registry import origin_of
from edgekit.backends.report import offload_in_words
from edgekit.backends.runners import make_runners
from edgekit.base.errors import BuildError, MissingToolError
from edgekit.base.events import Events
from edgekit.base.files import storage_errors
from edgekit.base.options import option
from edgekit.base.own_backends import leftovers_backend
from edgekit.base.wording import counted, size
from edgekit.building.product import (
    Compiled,
    CompileJob,
    Contents,
    Making,
    Need,
    OffloadWishes,
    Product,
    Words,
)
from edgekit.building.tuned_kernels import measured_choices
from edgekit.bundle.folder import describe_file
from edgekit.bundle.manifest import FileEntry, Kernel, Region
from edgekit.bundle.manifest_bare_metal import BufferEntry
from edgekit.bundle.manifest_runners import RunnerEntry
from edgekit.bundle.manifest_steps import Arena, LibraryStep
from edgekit.compiler.cuda.toolkit import PACKAGES, find_toolkit
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.compiler.steps import CodeArena, CodeStep
from edgekit.cross.link import Linker, Objects, link_shared_library
from edgekit.devices.elf import weight_bytes
from edgekit.profiles.architecture import architecture_of
from edgekit.profiles.cpu import Target

if TYPE_CHECKING:
    from edgekit.backends.offloading import OffloadedModel
    from edgekit.building.expectation import Expectation
    from edgekit.building.request import BuildRequest
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import Manifest
    from edgekit.models.model import Model
    from edgekit.profiles.board import Board


@dataclass(frozen=True)
class LibraryJob(CompileJob):
    target: Target
    offload: OffloadPlan = field(default_factory=OffloadPlan)
    choices: Choices = NO_CHOICES

    def compile(self, model: Model, events: Events) -> CompiledModel:
        from edgekit.backends.offloading import compile_model

        selection = selection_of(self.offload) if self.offload.backends else None
        backends = selection.backends if selection else ()
        compiled = compile_model(
            model,
            self.target,
            offload=selection,
            linked=True,
            choices=self.choices,
            dump_ir=self.dump_ir,
            events=events,
        )
        with events.stage("write the object files"):
            return write_objects(compiled, self.target, backends, self.scratch)


def write_objects(
    compiled: OffloadedModel,
    target: Target,
    backends: Sequence[tuple[Backend, Options]],
    scratch: Path,
) -> CompiledModel:
    """Write the compiled code and the regions into the scratch folder."""
    architecture = architecture_of(target.triple)
    if compiled.code.needs_runtime and architecture is not None and architecture.in_engine:
        raise BuildError(
            f"the model needs TVM's runtime, and no engine of {architecture.title} has it",
            hint="build it for a Linux board, or fix what its data decide with "
            f"{option('constant')} or {option('shape')}",
        )
    objects = compiled.code.write(target, scratch)
    regions = write_regions(compiled.regions, backends, scratch)
    return CompiledModel(
        objects,
        compiled.code.needs_runtime,
        regions,
        compiled.decisions,
        compiled.rules,
        compiled.choices,
        compiled.code.steps,
        compiled.code.memory,
    )


@dataclass(frozen=True)
class CompiledModel(Compiled):
    """Object files, and the regions of backends as source."""

    objects: Objects
    needs_runtime: bool = False
    """Whether TVM's virtual machine runs the code."""
    regions: tuple[RegionFiles, ...] = ()
    decisions: tuple[Decision, ...] = ()
    """The backend of each operator; empty without backends."""
    rules: tuple[tuple[str, str], ...] = ()
    """The name of each kernel, and the rule that gave its schedule."""
    choices: tuple[tuple[str, str], ...] = ()
    """The name of each tuned kernel, and its measured choice in words."""
    steps: tuple[CodeStep, ...] = ()
    memory: CodeArena | None = None

    def finish(self, making: Making, expectation: Expectation) -> Contents:
        from edgekit.building.reference_vectors import NAN

        files, runners = self._link(making)
        libraries = ", ".join(sorted({part.backend for part in self.regions}))
        if libraries:
            expectation = expectation.without(NAN, f"{libraries} may lose NaN, or spread it")
        measured = dict(self.choices)
        return Contents(
            files,
            expectation,
            regions=self._regions_in_manifest(),
            runners=runners,
            kernels=tuple(Kernel(name, rule, measured.get(name, "")) for name, rule in self.rules),
            steps=self._steps_in_manifest(),
            arena=self._arena_in_manifest(),
        )

    def _link(self, making: Making) -> tuple[tuple[FileEntry, ...], tuple[RunnerEntry, ...]]:
        """Compile the regions, then link everything into one library in the bundle's folder.

        Shared libraries that it loads, and sources that the device compiles, are put beside it.
        """
        folder, scratch, events = making.folder, making.scratch, making.events
        board, toolchain = making.request.board, making.request.toolchain
        linker = Linker.for_board(board, toolchain, making.compiler)
        options = making.request.offload.options
        bench = Workbench(board, toolchain, linker, scratch, events, options, self.needs_runtime)
        objects = self.objects
        beside = [*making.product.run_time_libraries(board, events)]
        runners: tuple[RunnerEntry, ...] = ()
        if self.regions:
            regions = compile_regions(self.regions, bench)
            objects = objects.with_libraries(regions.names, regions.libraries)
            linker = replace(linker, compiler=regions.compiler)
            beside = [*regions.beside, *beside]
            runners = make_runners(self.regions, replace(bench, linker=linker), folder)
        with storage_errors("write the libraries", folder):
            for path in beside:
                shutil.copyfile(path, folder / path.name)
        with events.stage("link the library") as stage:
            library = folder / linker.form.name
            link_shared_library(objects, linker, scratch, library)
            stage.result = f"{size(library.stat().st_size)} by {making.compiler.path.name}"
        loaded = [path.name for path in beside]
        loaded += [runner.library for runner in runners if runner.built == "host"]
        files = [describe_file(folder, linker.form.name, "library")]
        files += [describe_file(folder, name, "shared-library") for name in loaded]
        files += [describe_file(folder, one.source, "runner-source") for one in runners]
        return tuple(files), runners

    def _steps_in_manifest(self) -> tuple[LibraryStep, ...]:
        regions = {region.symbol: region for region in self.regions}
        macs = {entry.name: entry.macs for entry in self._regions_in_manifest()}
        found: list[LibraryStep] = []
        places: dict[int, tuple[int, ...]] = {}
        """The places in the manifest of each step's result."""
        for place, step in enumerate(self.steps):
            reads = None
            if step.reads is not None:
                reads = tuple(sorted({one for read in step.reads for one in places[read]}))
            if step.kind == "region" and step.symbol not in regions:
                places[place] = reads or ()
                continue  # a function of edgekit's own, such as a check of indices
            places[place] = (len(found),)
            region = regions.get(step.symbol)
            layers = step.layers if region is None else region.layers
            owner = "" if region is None else region.backend
            operations = 2 * macs[step.symbol] if step.symbol in macs else step.operations
            found.append(
                LibraryStep(
                    *(step.name, step.kind, layers, owner, step.bytes, operations, reads),
                    launches=step.launches,
                )
            )
        return tuple(found)

    def _arena_in_manifest(self) -> Arena | None:
        if self.memory is None:
            return None
        buffers = tuple(BufferEntry(**vars(one)) for one in self.memory.buffers)
        return Arena(self.memory.bytes, self.memory.bound, buffers)

    def _regions_in_manifest(self) -> tuple[Region, ...]:
        members: dict[str, list[Decision]] = {}
        sizes = {region.symbol: region.bytes for region in self.regions}
        places = {region.symbol: region.place for region in self.regions}
        for decision in self.decisions:
            if decision.region is not None:
                members.setdefault(decision.region, []).append(decision)
        return tuple(
            Region(
                name=symbol,
                backend=decisions[0].backend or "",
                operators=tuple(decision.operator for decision in decisions),
                macs=sum(decision.macs for decision in decisions),
                model_macs=sum(decision.macs for decision in self.decisions),
                reason=decisions[0].reason,
                bytes=sizes.get(symbol, 0),
                place=places.get(symbol, ""),
            )
            for symbol, decisions in members.items()
        )


class Library(Product):
    in_words = "a library"
    own_option = "TVM alone"
    tuner = "kernels"
    tuning_pays = True
    probe_flags: tuple[str, ...] = ("-shared", "-fPIC")

    def plan(self, board: Board, wishes: OffloadWishes) -> OffloadPlan:
        return plan_offload(
            board, wishes.project, wishes.asked, twin=wishes.twin, store=wishes.store
        )

    def with_measured(self, request: BuildRequest, events: Events, *, twin: bool) -> BuildRequest:
        choices = measured_choices(request.board.target, request.store, events, twin=twin)
        return replace(request, choices=choices)

    def offload_identity(self, request: BuildRequest) -> list[object]:
        plan = request.offload
        if not plan.backends:
            return []
        backends = [chosen_backend(name, plan.options.get(name, {})) for name in plan.backends]
        return [
            [
                [
                    backend.name,
                    backend.version,
                    origin_of(backend.name),
                    sorted(options.items()),
                    backend.identity(request.board, request.toolchain),
                ]
                for backend, options in backends
            ],
            [plan.force, plan.never, asdict(plan.rates), plan.one_layer_each],
            sorted(
                (symbol, record.verdict.pays, record.verdict.reason)
                for symbol, record in plan.measured.items()
            ),
        ]

    def job(self, request: BuildRequest, scratch: Path, dump_ir: Path | None) -> LibraryJob:
        return LibraryJob(
            request.source, scratch, dump_ir, request.board.target, request.offload, request.choices
        )

    def remark(self, request: BuildRequest, manifest: Manifest) -> str:
        backend = leftovers_backend(request.offload.backends)
        own = [region for region in manifest.regions if region.backend == backend]
        if own:
            operators = sum(len(region.operators) for region in own)
            library = sum(f.size for f in manifest.files if backend in f.path)
            return cost_in_words(backend, operators, sum(r.bytes for r in own), library)
        if not request.offload.backends or manifest.regions:
            return ""
        names = ", ".join(request.offload.backends)
        return f"nothing went to {names}; edgekit partition says why"

    def weight_bytes(self, bundle: Bundle) -> int:
        return weight_bytes(bundle.library)

    def size_in_words(self, manifest: Manifest, weight_bytes: int) -> Words:
        library = sum(file.size for file in manifest.files if file.role == "library")
        mapped = size(weight_bytes)
        return [("library", f"{size(library)}, of which {mapped} are mapped weights")]

    def content_in_words(self, manifest: Manifest) -> Words:
        words = offload_in_words(manifest.regions) or "nothing: TVM compiled everything"
        compiled = [
            (
                f"{runner.backend}, compiled",
                f"with the headers of {runner.version}" if runner.version else "on the device",
            )
            for runner in manifest.runners
        ]
        return [("offloaded", words), *compiled]


def _installed_toolkit() -> str:
    try:
        return str(find_toolkit().root)
    except MissingToolError:
        return ""


class GpuLibrary(Library):
    """A library whose kernels run on a GPU, and on the CPU where they can't."""

    tuning_pays = False
    nan_obstacle = "kernels on a GPU may lose NaN"

    def with_measured(self, request: BuildRequest, events: Events, *, twin: bool) -> BuildRequest:
        return request

    def board_identity(self, board: Board) -> list[object]:
        limits = board.target.gpu
        return [] if limits is None else [asdict(limits)]

    def size_in_words(self, manifest: Manifest, weight_bytes: int) -> Words:
        return [*super().size_in_words(manifest, weight_bytes), *_gpu_in_words(manifest)]

    def content_in_words(self, manifest: Manifest) -> Words:
        return [*super().content_in_words(manifest), *_gpu_in_words(manifest)]


class CudaLibrary(GpuLibrary):
    """The same with kernels that NVIDIA's compiler makes on the host."""

    fixed_sizes = "runs kernels on its GPU, which are made for one size"
    packages = PACKAGES
    needs = (
        Need(
            "CUDA packages",
            "compile kernels for the board's GPU",
            ", ".join(PACKAGES),
            "pip install 'edgekit[cuda]'",
            _installed_toolkit,
        ),
    )


def _gpu_in_words(manifest: Manifest) -> Words:
    """Describe what the GPU runs by its structure, which holds for every device."""
    on_gpu = [step for step in manifest.steps if step.kind == "gpu"]
    rest = [step.name for step in manifest.steps if step.kind != "gpu"]
    moved = sum(step.bytes or 0 for step in on_gpu)
    operations = sum(step.operations or 0 for step in on_gpu)
    words = [
        f"{len(on_gpu)} of {counted(len(manifest.steps), 'step')} in "
        f"{counted(sum(step.launches for step in on_gpu), 'kernel')}",
        f"{size(moved)} read and written",
        f"{operations / moved if moved else 0:.1f} operations a byte",
    ]
    pairs = [("on the GPU", ", ".join(words))]
    return [*pairs, ("on the CPU", ", ".join(rest))] if rest else pairs
