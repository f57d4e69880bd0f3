"""A short search on the device: it measures the choices that rules leave open.

The kernels that take longest come first. For each, one program runs the rule's own choice and a few
others in turn, compares their results, and is timed kernel by kernel. Results are stored at once,
and every later build uses the best.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import BuildError, DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.building.products.library import CompiledModel
from edgekit.building.request import BuildRequest
from edgekit.building.timing_bundle import timing_bundle
from edgekit.building.tuned_kernels import (
    WORTH_IT,
    TunedKernel,
    choices_of,
    record_target,
    tuned_kernels,
)
from edgekit.compiler.schedules.choices import VERSION, Choice, ProductChoice, choice_as_json
from edgekit.cross.toolchain import Compiler, find_compiler
from edgekit.devices.base import BenchPlan
from edgekit.store.moments import now
from edgekit.store.tuning_log import tuning_log
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, Workload
from edgekit.tuning.messages import Kernel, Order, Trial, TrialOrder
from edgekit.tuning.process import TuningProcess, tuning_process
from edgekit.verbs.bench import is_busy
from edgekit.verbs.recording import session_of

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.device import Device

_FAR = 1e-9
"""The largest relative squared error; reordered single precision stays far below."""
_SECONDS_A_TRIAL = 0.5
_FEWEST, _MOST = 5, 100
"""The fewest and most inferences of a trial."""


@dataclass(frozen=True)
class QuickTune:
    """The result of a search."""

    kernels: int
    """The number of kernels of the model with choices."""
    measured: tuple[TunedKernel, ...]
    """The kernels measured by this search."""
    known: int
    """The number of kernels measured earlier."""
    seconds: float

    @property
    def better(self) -> tuple[TunedKernel, ...]:
        return tuple(record for record in self.measured if not record.is_own)


def quick_tune(
    request: BuildRequest,
    device: Device,
    seconds: float,
    events: Events = SILENT,
    *,
    again: bool = False,
) -> tuple[BuildRequest, QuickTune]:
    """Search for about `seconds` and return the request with all known choices.

    Kernels that were measured on this kind of CPU before are skipped, unless `again`.
    """
    started = time.monotonic()
    target, store, twin = request.board.target, request.store, device.is_emulated
    if twin:
        events.warn(f"{device.name} is emulated: its times decide for twins, and for no real board")
    order = Order(
        replace(request.source, path=request.source.path.absolute()), target, request.offload
    )
    with (
        scratch_directory(cache_dir()) as scratch,
        tuning_process(order) as process,
        events.stage(f"tune on {device.name}", total=round(seconds)) as stage,
    ):
        kernels = process.kernels()
        known = {} if again else tuned_kernels(target, store, events, twin=twin)
        left = [kernel for kernel in kernels if kernel.key not in known]
        session = session_of(request, (device.name,), len(left), seconds=seconds)
        with tuning_log(session, store, events) as log:
            compiler = find_compiler(request.toolchain)
            search = _Search(request, device, process, compiler, scratch, events, session.id)
            shown = 0
            for kernel in left:
                passed = round(time.monotonic() - started)
                stage.advance(min(passed, round(seconds)) - shown, kernel.words)
                shown = min(passed, round(seconds))
                if passed >= seconds:
                    break
                search.measure(kernel)
                log.add(search.take_records(), search.progress)
        found = QuickTune(
            len(kernels),
            tuple(search.measured),
            len(kernels) - len(left),
            time.monotonic() - started,
        )
        stage.result = _in_words(found)
    measured = {kernel.kernel: kernel for kernel in found.measured}
    choices = choices_of({**measured, **tuned_kernels(target, store, twin=twin)})
    return replace(request, choices=choices), found


def _in_words(found: QuickTune) -> str:
    done = len(found.measured) + found.known
    return f"{done} of {found.kernels} kernels measured, {len(found.better)} better than before"


def is_as_right(apart: float) -> bool:
    """Return whether a relative squared error is small enough; NaN is not."""
    return apart <= _FAR


@dataclass(frozen=True)
class _Timed:
    choice: Choice
    microseconds: float


class _Search:
    def __init__(
        self,
        request: BuildRequest,
        device: Device,
        process: TuningProcess,
        compiler: Compiler,
        scratch: Path,
        events: Events,
        session: str,
    ) -> None:
        self.measured: list[TunedKernel] = []
        self._session = session
        self._records: list[TuningRecord] = []
        self._tried = self._failed = 0
        self._request = request
        self._device = device
        self._process = process
        self._compiler = compiler
        self._scratch = scratch
        self._events = events
        self._trials = 0
        self._warned = False

    def measure(self, kernel: Kernel) -> None:
        """Measure a kernel, or warn if not even the rule's own choice could be timed."""
        own, *others = kernel.candidates
        timed = self._timed(kernel, (own, *others))
        if not timed:
            return
        self._note_times(kernel, timed)
        best = sorted(timed[1:], key=lambda one: one.microseconds)
        better = [one for one in best if one.microseconds < WORTH_IT * timed[0].microseconds]
        more = _together([one.choice for one in better])
        if more:
            again = self._timed(kernel, (own, better[0].choice, *more))
            self._note_times(kernel, again)
            timed = again or timed
        winner = min(timed, key=lambda one: one.microseconds)
        if winner.microseconds >= WORTH_IT * timed[0].microseconds:
            winner = timed[0]
        times = (winner.microseconds, timed[0].microseconds)
        self.measured.append(
            TunedKernel(kernel.key, winner.choice, *times, kernel.words, self._device.name)
        )

    @property
    def progress(self) -> TuningProgress:
        return TuningProgress(
            session=self._session,
            at=now(),
            trials=self._tried,
            failed=self._failed,
            own_us=sum(kernel.own_us for kernel in self.measured),
            best_us=sum(kernel.best_us for kernel in self.measured),
        )

    def take_records(self) -> list[TuningRecord]:
        """Return the records since the last call."""
        taken, self._records = self._records, []
        return taken

    def _note_times(self, kernel: Kernel, timed: Sequence[_Timed]) -> None:
        for one in timed:
            self._note(kernel, one.choice, (one.microseconds, timed[0].microseconds))

    def _note(
        self,
        kernel: Kernel,
        choice: Choice,
        times: tuple[float, float] | None,
        error: str | None = None,
    ) -> None:
        self._tried += 1
        self._failed += error is not None
        best_us, own_us = times or (None, None)
        target = record_target(self._request.board.target, self._device.is_emulated)
        workload = Workload(kernel.key, target, VERSION, kernel.words)
        self._records.append(
            TuningRecord(
                id=uuid.uuid4().hex,
                workload=workload,
                session=self._session,
                device=self._device.name,
                measured_at=now(),
                choice=choice_as_json(choice),
                best_us=best_us,
                own_us=own_us,
                error=error,
            )
        )

    def _timed(self, kernel: Kernel, choices: Sequence[Choice]) -> list[_Timed]:
        """Time the first choice and those others that ran with the same numbers.

        After a crash each is tried alone.
        """
        try:
            return self._run(kernel, tuple(choices))
        except (BuildError, DeviceError) as error:
            if len(choices) == 1:
                self._events.warn(f"{kernel.words} is not measured: {error.message}")
                self._note(kernel, choices[0], None, _kind_of(error))
                return []
        own, *others = choices
        found: dict[Choice, _Timed] = {}
        for other in others:
            try:
                first, *rest = self._run(kernel, (own, other))
            except (BuildError, DeviceError) as error:
                self._events.note(f"{kernel.words}, {other.words}: {error.message}")
                self._note(kernel, other, None, _kind_of(error))
                continue
            found.setdefault(own, first)
            # Relative to the rule's own choice in the same run.
            scale = found[own].microseconds / max(first.microseconds, 1e-3)
            found.update(
                {one.choice: replace(one, microseconds=one.microseconds * scale) for one in rest}
            )
        return list(found.values())

    def _run(self, kernel: Kernel, choices: tuple[Choice, ...]) -> list[_Timed]:
        self._trials += 1
        folder = self._scratch / f"trial{self._trials}"
        objects = folder / "objects"
        objects.mkdir(parents=True)
        trial = self._process.make(TrialOrder(kernel.key, choices, objects))
        bundle = self._bundle(trial, folder)
        inputs = bundle.reference_inputs()
        with self._device.opened(bundle, purpose="tune") as session:
            result = session.run(inputs)
            apart = result.outputs[trial.output.name]
            count = max(_FEWEST, min(_MOST, int(_SECONDS_A_TRIAL / max(result.seconds, 1e-4))))
            samples = session.bench(inputs, BenchPlan(1, 1, 0.0, None, count))
        if is_busy(samples) and not self._warned:
            self._warned = True
            self._events.warn(f"{self._device.name} is busy: measurements are less reliable")
        times = (
            {}
            if samples.kernels is None
            else {time.name: time.nanoseconds / 1e3 for time in samples.kernels.kernels}
        )
        found = []
        for place, choice in enumerate(trial.tried):
            if not is_as_right(float(apart[place])):
                self._events.warn(f"{kernel.words}, {choice.words}: its numbers differ; left out")
                self._note(kernel, choice, None, "numbers")
            elif trial.kernel_of(place) in times:
                found.append(_Timed(choice, times[trial.kernel_of(place)]))
        if not found or found[0].choice != choices[0]:
            raise DeviceError(
                "the rule's own choice was not timed",
                hint="report this with the model: it is a bug",
            )
        return found

    def _bundle(self, trial: Trial, folder: Path) -> Bundle:
        import numpy as np

        values = {
            spec.name: np.load(folder / "objects" / f"input{number}.npy", allow_pickle=False)
            for number, spec in enumerate(trial.inputs)
        }
        compiled = CompiledModel(trial.objects)
        ends = (trial.inputs, (trial.output,))
        return timing_bundle(
            self._request, self._compiler, folder.name, compiled, ends, values, folder
        )


def _kind_of(error: BuildError | DeviceError) -> str:
    return "compile" if isinstance(error, BuildError) else "run"


def _together(better: Sequence[Choice]) -> list[Choice]:
    """Return the combination of all single improvements, the best where they conflict."""
    products = [choice for choice in better if isinstance(choice, ProductChoice)]
    if len(products) < 2:
        return []
    own, together = ProductChoice(), ProductChoice()
    for choice in reversed(products):
        changed = {n: v for n, v in vars(choice).items() if v != getattr(own, n)}
        together = replace(together, **changed)
    return [] if together in products else [together]
