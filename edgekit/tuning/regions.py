"""Times regions on a device both ways: by the library, and compiled by TVM.

Each way is a small bundle, which is deployed and measured like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from edgekit.backends.base import Region, Tensor
from edgekit.backends.measurements import Measured, keep_measurement
from edgekit.backends.plan import selection_of, twin_of
from edgekit.base.errors import BuildError, DeviceError, UsageError
from edgekit.base.events import SILENT, Events, Stage
from edgekit.base.files import scratch_directory
from edgekit.base.options import option
from edgekit.base.paths import cache_dir
from edgekit.base.tensors import TensorSpec
from edgekit.building.partition import decide
from edgekit.building.products.library import CompiledModel, write_objects
from edgekit.building.request import BuildRequest
from edgekit.building.timing_bundle import timing_bundle
from edgekit.bundle.folder import Bundle
from edgekit.cross.toolchain import Compiler, find_compiler
from edgekit.devices.base import BenchPlan
from edgekit.models.model import Model
from edgekit.store.address import is_off
from edgekit.store.lookup import deliver_waiting
from edgekit.store.moments import now
from edgekit.verbs.bench import is_busy

if TYPE_CHECKING:
    from edgekit.backends.offloading import OffloadedModel
    from edgekit.backends.partition import Candidate
    from edgekit.base.arrays import Array
    from edgekit.devices.device import Device

PLAN = BenchPlan(warmup=3, runs=10, seconds=1.0)


def measure_regions(
    request: BuildRequest,
    device: Device,
    events: Events = SILENT,
    *,
    plan: BenchPlan = PLAN,
    again: bool = False,
) -> BuildRequest:
    """Measure all new regions, or all `again`, and return the request with all known measurements.

    Each result is stored at once, so that an interrupted run can resume. A region that one backend
    loses may go to another one, so this repeats until nothing new comes up.
    """
    if not request.offload.backends:
        raise UsageError(
            "no backend is named, so there is nothing to measure",
            hint=f"add {option('offload', 'NAMES')}, "
            'or backends = ["NAME"] under [offload] in edgekit.toml',
        )
    if device.ask_measurer() != device.measured_by:
        raise UsageError(
            f"{device.name} runs in QEMU: its times can't decide for a board",
            hint=f"{option('twin')} measures on a twin, for twins",
        )
    if device.is_emulated:
        events.warn(f"{device.name} is emulated: its times decide for twins, and for no real board")
    store = request.store
    if is_off(store):
        events.warn("no store is in use: the measurements serve this command only")
    tried: set[str] = set()
    try:
        while missing := _regions_left(request, tried, again, events):
            backends = {candidate.claim.region.backend for candidate in missing.values()}
            _prepare_libraries(request, backends, events)
            measured = dict(request.offload.measured)
            with events.stage(f"measure on {device.name}", total=2 * len(missing)) as stage:
                for symbol, candidate in missing.items():
                    record = _measured(request, candidate, device, plan, events, stage)
                    if record is not None:
                        keep_measurement(record, store)
                        measured[symbol] = record
                stage.result = f"{len(missing)} region{'s' if len(missing) > 1 else ''}"
            tried |= missing.keys()
            request = replace(request, offload=replace(request.offload, measured=measured))
    finally:
        deliver_waiting(store, events)
    return request


def _regions_left(
    request: BuildRequest, tried: set[str], again: bool, events: Events
) -> dict[str, Candidate]:
    measured = tried if again else {*request.offload.measured, *tried}
    candidates = {c.claim.region.symbol: c for c in decide(request, events).candidates}
    return {symbol: found for symbol, found in candidates.items() if symbol not in measured}


def _prepare_libraries(request: BuildRequest, backends: set[str], events: Events) -> None:
    """Build the libraries before anything is timed, because that takes minutes."""
    for backend, _ in selection_of(request.offload).backends:
        if backend.name in backends:
            backend.library(request.board, request.toolchain, events)


def _measured(
    request: BuildRequest,
    candidate: Candidate,
    device: Device,
    plan: BenchPlan,
    events: Events,
    stage: Stage,
) -> Measured | None:
    """Measure a region; warn and return None if it can't be built, or runs elsewhere."""
    from edgekit.models.comparison import compare

    region = candidate.claim.region
    try:
        with scratch_directory(cache_dir()) as scratch:
            both = _BothWays(request, candidate, find_compiler(request.toolchain), scratch)
            library = both.time(both.by_library, device, plan)
            stage.advance(detail=region.symbol)
            tvm = both.time(both.by_tvm, device, plan)
            stage.advance(detail=region.symbol)
    except (BuildError, _RunsElsewhere) as error:
        events.warn(f"{region.symbol} is not measured: {error.message}")
        return None
    if library.was_busy or tvm.was_busy:
        events.warn(
            f"{device.name} was busy while {region.symbol} was measured: measure "
            f"{option('again')} when it "
            "is not"
        )
    agreement = compare(tvm.outputs, library.outputs, both.outputs)
    if not agreement.passed:
        events.warn(f"{region.symbol}: {region.backend} and TVM compute different numbers")
    (version,) = {
        backend.version
        for backend, _ in selection_of(request.offload).backends
        if backend.name == region.backend
    }
    return Measured(
        region=region.symbol,
        board=twin_of(request.board) if device.is_emulated else request.board.name,
        backend=region.backend,
        version=version,
        library_us=library.microseconds,
        tvm_us=tvm.microseconds,
        agrees=agreement.passed,
        device=device.name,
        measured_at=now(),
        measured_by=device.measured_by,
    )


class _RunsElsewhere(DeviceError):
    """The error for a region that does not run where its library was built for: on no GPU."""


@dataclass(frozen=True)
class _Timed:
    microseconds: float
    was_busy: bool
    """Whether other work made the time unreliable."""
    outputs: dict[str, Array]


@dataclass(frozen=True)
class _BothWays:
    """One region that is built both ways."""

    request: BuildRequest
    candidate: Candidate
    compiler: Compiler
    scratch: Path

    @property
    def region(self) -> Region:
        return self.candidate.claim.region

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return _specs("input", self.region.inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return _specs("output", self.region.outputs)

    def by_library(self, folder: Path) -> CompiledModel:
        from edgekit.backends.extract import as_call

        compiled = self._compiled(as_call(self.candidate), (self.region,))
        backends = selection_of(self.request.offload).backends
        return write_objects(compiled, self.request.board.target, backends, folder)

    def by_tvm(self, folder: Path) -> CompiledModel:
        from edgekit.backends.extract import as_operators

        compiled = self._compiled(as_operators(self.candidate))
        return write_objects(compiled, self.request.board.target, (), folder)

    def time(self, way: Callable[[Path], CompiledModel], device: Device, plan: BenchPlan) -> _Timed:
        bundle = self._bundle(way)
        inputs = bundle.reference_inputs()
        with device.opened(bundle, purpose="measure regions") as session:
            outputs = session.run(inputs).outputs
            samples = session.bench(inputs, plan)
        if samples.warned:
            raise _RunsElsewhere(samples.warned[0], hint="mend that, or turn its option off")
        return _Timed(median(samples.nanoseconds) / 1e3, is_busy(samples), outputs)

    def _compiled(self, module: Any, regions: tuple[Region, ...] = ()) -> OffloadedModel:
        from edgekit.backends.offloading import compile_model

        model = Model(self.request.source, module, self.inputs, self.outputs, ())
        return compile_model(model, self.request.board.target, regions=regions, linked=True)

    def _bundle(self, way: Callable[[Path], CompiledModel]) -> Bundle:
        """Build a bundle without an oracle: the outputs are compared with each other."""
        from edgekit.models.inputs import reference_inputs

        folder = self.scratch / way.__name__
        objects = folder / "objects"
        objects.mkdir(parents=True)
        source = replace(self.request.source, path=Path(self.region.symbol))
        return timing_bundle(
            replace(self.request, source=source),
            self.compiler,
            way(objects),
            (self.inputs, self.outputs),
            reference_inputs(self.inputs, self.request.seed),
            folder,
        )


def _specs(word: str, tensors: tuple[Tensor, ...]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(f"{word}{index}", tensor.dtype, tensor.shape)
        for index, tensor in enumerate(tensors)
    )
