"""Tuning for microcontrollers: counts every variant of each step's C on the board.

Each firmware tries another way of every step at once and times each step, so that a model needs as
many firmwares as its richest step has ways. Outputs are compared with the oracle's each time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from edgekit.aot.ways import VERSION, StepWays, Way, way_as_json, way_from_json
from edgekit.base.errors import BuildError, DeviceError, UnsupportedModelError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.base.report import Report
from edgekit.building.build import build
from edgekit.building.compile_process import compiling_in_child
from edgekit.building.products.program_in_c import CompiledProgram, ProgramInC
from edgekit.building.request import BuildRequest
from edgekit.building.tuned_steps import WORTH_IT, Unit, c_target
from edgekit.devices.base import BenchPlan, Counted
from edgekit.store.address import default_url, is_off
from edgekit.store.lookup import deliver_waiting
from edgekit.store.moments import now
from edgekit.store.tuning_log import TuningLog, tuning_log
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, Workload
from edgekit.tuning.rounds import Assignment, candidates_of, halves, rounds
from edgekit.verbs.fleet import on_each, raise_if_any_failed
from edgekit.verbs.recording import session_of
from edgekit.verbs.verify import verify

if TYPE_CHECKING:
    from edgekit.devices.choice import Candidate as DeviceCandidate
    from edgekit.devices.device import Device

_RUNS = 3
_NANOSECONDS_AN_INSTRUCTION = 1.0
"""The nominal time of an emulated core, which `edgekit results` shows."""


@dataclass(frozen=True)
class TunedStep:
    """The result for steps that are computed alike."""

    key: str
    words: str
    own: Way
    best: Way
    own_us: float
    best_us: float
    steps: int
    """The number of such steps in the model."""


@dataclass(frozen=True)
class TunedInC(Report):
    session: str
    unit: Unit
    steps: tuple[TunedStep, ...]
    measured: int
    """The number of ways measured by this search."""
    failed: int
    known: int
    """The number of ways measured earlier."""
    own_us: float
    """The time of all steps in one inference."""
    best_us: float
    seconds: float

    def headline(self) -> str:
        gain = f", {self.own_us / self.best_us:.3f}x" if self.best_us else ""
        return f"{self.measured} ways of {len(self.steps)} steps measured{gain}"


def tune_c(
    request: BuildRequest,
    devices: Sequence[DeviceCandidate],
    unit: Unit,
    *,
    seconds: float | None = None,
    trials: int | None = None,
    again: bool = False,
    events: Events = SILENT,
) -> TunedInC:
    """Count every new way, or all `again`, within the limits of time and number.

    Later builds use the best. `unit` is what the devices count in.
    """
    started = time.monotonic()
    request = replace(request, ways={}, code_format=None)
    names = [device.name for device in devices]
    with scratch_directory(cache_dir()) as scratch:
        with events.stage("find the steps") as stage:
            steps = steps_of(request, scratch, events)
            kinds = {step.key for step in steps}
            stage.result = f"{len(kinds)} kinds"
        known = () if again else known_records(request, kinds, unit)
        session = replace(
            session_of(request, names, len(kinds), trials=trials, seconds=seconds),
            target=c_target(request.board, request.toolchain, unit),
        )
        with tuning_log(session, request.store, events) as log:
            search = _Search(request, steps, known, scratch, log, unit)
            search.plan_for(trials, None if seconds is None else started + seconds)
            if search.plan or kinds - _seen(known).keys():
                raise_if_any_failed(on_each(devices, search.work, events))
        tuned = search.tuned()
    return TunedInC(
        session=session.id,
        unit=unit,
        steps=tuned,
        measured=len(search.records),
        failed=search.failed,
        known=sum(map(len, _seen(known).values())),
        own_us=sum(step.own_us * step.steps for step in tuned),
        best_us=sum(step.best_us * step.steps for step in tuned),
        seconds=time.monotonic() - started,
    )


def known_records(
    request: BuildRequest, keys: Iterable[str], unit: Unit
) -> tuple[TuningRecord, ...]:
    """Return what earlier searches counted for these steps."""
    url = request.store or default_url()
    if is_off(url):
        return ()
    from edgekit.store.database import close_store, open_store
    from edgekit.store.tuning import records_of

    deliver_waiting(url)
    target = c_target(request.board, request.toolchain, unit)
    store = open_store(url)
    try:
        return tuple(record for key in keys for record in records_of(store, key, target, VERSION))
    finally:
        close_store(store)


def _seen(records: Iterable[TuningRecord]) -> dict[str, frozenset[Way]]:
    found: dict[str, set[Way]] = {}
    for record in records:
        way = way_from_json(record.choice)
        if way is not None:
            found.setdefault(record.workload.key, set()).add(way)
    return {key: frozenset(ways) for key, ways in found.items()}


def _tuned(steps: Sequence[StepWays], records: Sequence[TuningRecord]) -> tuple[TunedStep, ...]:
    """Return the best known way of each kind of step, the longest steps first."""
    alike = Counter(step.key for step in steps)
    tuned = []
    for step in {step.key: step for step in reversed(steps)}.values():
        own = best = None
        way = step.taken
        for record in records:
            if record.workload.key != step.key or record.best_us is None or not record.own_us:
                continue
            found = way_from_json(record.choice)
            if found == step.taken:
                own = record.best_us
            elif found is not None and (best is None or record.best_us / record.own_us < best):
                best, way = record.best_us / record.own_us, found
        if own is None:
            continue  # the time ended before it was counted
        if best is None or best >= WORTH_IT:
            best, way = 1.0, step.taken
        words = step.words
        tuned.append(TunedStep(step.key, words, step.taken, way, own, own * best, alike[step.key]))
    return tuple(sorted(tuned, key=lambda step: -step.own_us * step.steps))


def steps_of(request: BuildRequest, scratch: Path, events: Events) -> tuple[StepWays, ...]:
    folder = scratch / "ways"
    folder.mkdir()
    job = ProgramInC().job(request, folder, None)
    job = replace(job, tree=replace(job.tree, with_ways=True))
    with compiling_in_child(job, events) as compilation:
        compilation.imported()
        compiled = compilation.compiled()
    assert isinstance(compiled, CompiledProgram)
    return compiled.tree.ways


@dataclass
class _Search:
    """The state that the threads of several devices share."""

    request: BuildRequest
    steps: tuple[StepWays, ...]
    known: Sequence[TuningRecord]
    scratch: Path
    log: TuningLog
    unit: Unit
    plan: deque[Assignment] = field(default_factory=deque)
    rounds: int = 0
    ends_at: float | None = None
    records: list[TuningRecord] = field(default_factory=list)
    failed: int = 0
    _made: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def plan_for(self, trials: int | None, ends_at: float | None) -> None:
        self.plan = deque(rounds(candidates_of(self.steps, _seen(self.known))[:trials]))
        self.rounds, self.ends_at = len(self.plan), ends_at

    def tuned(self) -> tuple[TunedStep, ...]:
        return _tuned(self.steps, (*self.known, *self.records))

    def work(self, device: Device, events: Events) -> None:
        if unit_of(device) != self.unit:
            raise UsageError(
                f"{device.name} counts {unit_of(device)}, and another device {self.unit}",
                hint="tune on real boards or on twins, not on both at once",
            )
        with events.stage(f"count {self.unit} on {device.name}", self.rounds) as stage:
            own = self._counts({}, device)
            self._note(device, {s.key: (s.taken, own[s.key], own[s.key]) for s in self.steps})
            while (assignment := self._next()) is not None:
                self._try(assignment, own, device, events)
                stage.advance(1, f"{len(assignment)} ways")

    def _next(self) -> Assignment | None:
        with self._lock:
            late = self.ends_at is not None and time.monotonic() >= self.ends_at
            return self.plan.popleft() if self.plan and not late else None

    def _try(
        self, assignment: Assignment, own: Mapping[str, float], device: Device, events: Events
    ) -> None:
        """Try an assignment; halve one that fails until the way to blame stands alone."""
        try:
            counts = self._counts(assignment, device)
        except _WrongNumbers:
            self._blame(assignment, own, device, events, "numbers")
        except (BuildError, UnsupportedModelError):
            self._blame(assignment, own, device, events, "compile")
        else:
            found = {key: counts[key] for key in assignment if key in counts}
            self._note(device, {k: (assignment[k], us, own.get(k)) for k, us in found.items()})

    def _blame(
        self,
        assignment: Assignment,
        own: Mapping[str, float],
        device: Device,
        events: Events,
        error: str,
    ) -> None:
        if len(assignment) > 1:
            for half in halves(assignment):
                self._try(half, own, device, events)
            return
        ((key, way),) = assignment.items()
        if error == "numbers":
            events.warn(f"{self._words(key)}, {way.words}: its numbers are wrong; left out")
        self._note(device, {key: (way, None, own.get(key))}, error)

    def _counts(self, ways: Assignment, device: Device) -> dict[str, float]:
        """Return the microseconds of each kind of step."""
        with self._lock:
            self._made += 1
            folder = self.scratch / f"round{self._made}"
        bundle = build(replace(self.request, ways=ways), folder, use_cache=False).bundle
        with device.opened(bundle, purpose=f"tune {self.request.source.name}") as session:
            if not verify(bundle, session).passed:
                raise _WrongNumbers
            samples = session.bench(bundle.reference_inputs(), BenchPlan(0, _RUNS, 0.0, None, 1))
        if samples.counted is None:
            raise DeviceError(f"{device.name} counts no steps", hint="tune on a microcontroller")
        return self._by_key(samples.counted)

    def _by_key(self, counted: Counted) -> dict[str, float]:
        kinds = {step.step: step.key for step in self.steps}
        sums: dict[str, list[float]] = {}
        for step in counted.steps:
            if step.name in kinds:
                sums.setdefault(kinds[step.name], []).append(microseconds(step.count, counted))
        return {key: sum(times) / len(times) for key, times in sums.items()}

    def _words(self, key: str) -> str:
        return next(step.words for step in self.steps if step.key == key)

    def _note(
        self,
        device: Device,
        found: Mapping[str, tuple[Way, float | None, float | None]],
        error: str | None = None,
    ) -> None:
        target = c_target(self.request.board, self.request.toolchain, self.unit)
        records = [
            TuningRecord(
                id=uuid4().hex,
                workload=Workload(key, target, VERSION, self._words(key)),
                session=self.log.session.id,
                device=device.name,
                measured_at=now(),
                choice=way_as_json(way),
                best_us=us,
                own_us=own,
                error=error,
            )
            for key, (way, us, own) in found.items()
        ]
        with self._lock:
            self.records.extend(records)
            self.failed += len(records) if error else 0
            self.log.add(records, self._progress())

    def _progress(self) -> TuningProgress:
        tuned = self.tuned()
        return TuningProgress(
            self.log.session.id,
            now(),
            len(self.records),
            self.failed,
            sum(step.own_us * step.steps for step in tuned),
            sum(step.best_us * step.steps for step in tuned),
        )


class _WrongNumbers(Exception):
    """The firmware's outputs differ from the oracle's."""


def unit_of(device: Device) -> Unit:
    """Return what a microcontroller counts in."""
    return device.firmware().unit


def microseconds(count: int, counted: Counted) -> float:
    if counted.clock is None:
        return count * _NANOSECONDS_AN_INSTRUCTION / 1e3
    return count / counted.clock * 1e6
