"""edgekit tune: measures many variants of every kernel of a model, on many devices.

The rule's own way of each kernel is measured along with the others, in the same minute on the same
device, and stands unless another one is faster beyond noise. Results are stored batch by batch, and
every later build uses them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace

from edgekit.base.errors import BuildError, UnsupportedModelError
from edgekit.base.events import SILENT, Events, Stage
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.base.report import Report
from edgekit.base.wording import duration
from edgekit.building.compilation import Failure
from edgekit.building.compile_process import error_of
from edgekit.building.request import BuildRequest
from edgekit.building.tuned_kernels import record_target
from edgekit.compiler.schedules.choices import VERSION, Choice, choice_as_json
from edgekit.cross.link import Linker
from edgekit.cross.toolchain import find_compiler
from edgekit.store.address import default_url, is_off
from edgekit.store.lookup import deliver_waiting
from edgekit.store.moments import now
from edgekit.store.tuning_log import TuningLog, tuning_log
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, Workload
from edgekit.tuning.child import Child, ChildGone
from edgekit.tuning.crew import Crew, DeviceNews
from edgekit.tuning.search import BatchOutcome, Limits, Search
from edgekit.tuning.standing import KernelOutcome, Standing, outcomes, totals
from edgekit.tuning.tune_devices import HELD_SECONDS, Pool
from edgekit.tuning.work import BuilderSetup, FindTasks, RunnerSetup, Taken, Task, Timed
from edgekit.verbs.recording import session_of

BUILDER = "edgekit.tuning.builder"

_FIND_SECONDS = 1800.0
_WAIT_SECONDS = 600.0
"""The longest wait for a busy device of the farm."""
_MOST_BUILDERS = 16


@dataclass(frozen=True)
class TuneReport(Report):
    """The result of a search."""

    model: str
    board: str
    target: str
    session: str
    devices: tuple[str, ...]
    emulated: bool
    """Whether all devices are emulated, so that the results are for twins only."""
    seconds: float
    trials: int
    """The number of trials of this search."""
    known: int
    """The number of trials of earlier searches."""
    errors: Mapping[str, int]
    """The number of errors by kind."""
    ended: str
    """The reason of the end: "trials", "time" or "nothing better to be expected"."""
    own_us: float
    """The time of one inference's kernels by the rules."""
    best_us: float
    kernels: tuple[KernelOutcome, ...]

    def headline(self) -> str:
        gain = f", {self.own_us / self.best_us:.2f}x" if self.best_us else ""
        return f"{self.model} on {', '.join(self.devices)}: {self.trials} trials{gain}"


@dataclass(frozen=True)
class Effort:
    """How much to search."""

    trials: int | None = None
    seconds: float | None = None
    again: bool = False
    """Whether to measure again what was measured before."""
    seed: int = 0
    builders: int | None = None
    pause_us: int = 0
    """A pause in each run, for benchmarks of the search itself."""


def tune(
    request: BuildRequest,
    pool: AbstractContextManager[Pool],
    effort: Effort,
    events: Events = SILENT,
) -> TuneReport:
    """Tune a model; enter `pool` only if there is something to tune."""
    with ExitStack() as closing:
        scratch = closing.enter_context(scratch_directory(cache_dir()))
        with events.stage("find the kernels") as stage:
            proposer, tasks = _found(request, effort, closing)
            stage.result = f"{len(tasks)} to be tuned"
        devices = closing.enter_context(pool)
        target = record_target(request.board.target, devices.is_emulated)
        if devices.twins:
            names = ", ".join(sorted(devices.twins))
            events.warn(f"emulated times decide for twins, and for no real board: {names}")
        begun = session_of(
            request, devices.names, len(tasks), trials=effort.trials, seconds=effort.seconds
        )
        session = replace(begun, target=target)
        log = closing.enter_context(tuning_log(session, request.store, events))
        stage = closing.enter_context(_stage(devices, effort, events))
        recorder = _Recorder(request, devices, log, stage, effort)
        search = Search(
            tasks,
            proposer,
            scratch,
            Limits(effort.trials, effort.seconds),
            recorder.told,
            lambda news: _report_news(news, events),
        )
        recorder.search = search
        known = 0 if effort.again else _remember(search, target, request.store)
        recorder.begin(known)
        builders = effort.builders or min(len(os.sched_getaffinity(0)), _MOST_BUILDERS)
        crew = _crew(request, devices, search, builders, effort)
        closing.callback(crew.close)
        try:
            search.run(crew, len(devices.keys), builders)
        except KeyboardInterrupt:
            if search.new_trials:
                kept = "kept" if log.remembers else "lost: no store is in use"
                events.warn(f"{search.new_trials} trials of this search are {kept}")
            raise
        report = _report(request, devices, search, session.id, known, effort)
        stage.result = _in_words(report)
        return report


def _found(
    request: BuildRequest, effort: Effort, closing: ExitStack
) -> tuple[Child, tuple[Task, ...]]:
    source = replace(request.source, path=request.source.path.absolute())
    order = FindTasks(
        source,
        request.board.target,
        request.offload,
        effort.seed,
        _measures_locally(request, effort),
    )
    proposer = Child("edgekit.tuning.proposer", order)
    closing.callback(proposer.close)
    proposer.start()
    try:
        tasks = proposer.receive(_FIND_SECONDS)
    except ChildGone as gone:
        raise BuildError(
            f"the compiler ended early: {gone.reason}",
            hint="this is a fault in TVM or LLVM; report it with the model",
        ) from gone
    if isinstance(tasks, Failure):
        raise error_of(tasks)
    if not tasks:
        raise UnsupportedModelError(
            f"{request.source.name} has no kernel that could be tuned",
            hint="`edgekit partition` shows what is offloaded; --offload none tunes that too",
        )
    return proposer, tasks


def _measures_locally(request: BuildRequest, effort: Effort) -> bool:
    """Return whether compiling would disturb the measurements on this host."""
    return request.board.is_host and not effort.pause_us


@contextmanager
def _stage(devices: Pool, effort: Effort, events: Events) -> Iterator[Stage]:
    names = devices.names
    where = names[0] if len(names) == 1 else f"{len(names)} devices"
    total = effort.trials or (round(effort.seconds) if effort.seconds is not None else None)
    with events.stage(f"tune on {where}", total) as stage:
        yield stage


def _report_news(news: DeviceNews, events: Events) -> None:
    if news.warn:
        events.warn(news.text)
    else:
        events.note(news.text)


def _remember(search: Search, target: str, store_url: str | None) -> int:
    """Load what earlier searches measured for these kernels, and return the number of trials."""
    url = store_url or default_url()
    if is_off(url):
        return 0
    from edgekit.store.database import close_store, open_store
    from edgekit.store.tuning import records_of

    deliver_waiting(url)
    store = open_store(url)
    try:
        known = sum(
            standing.remember(records_of(store, key, target, VERSION))
            for key, standing in search.standings.items()
        )
    finally:
        close_store(store)
    search.learn_what_is_known()
    return known


def _crew(
    request: BuildRequest, devices: Pool, search: Search, builders: int, effort: Effort
) -> Crew:
    linker = Linker.for_board(request.board, request.toolchain, find_compiler(request.toolchain))
    setup = BuilderSetup(
        request.board.target, linker, _measures_locally(request, effort), effort.pause_us
    )
    runtime_only = {"TVM_USE_RUNTIME_LIB": "1"}
    runners = [
        Child(
            "edgekit.tuning.runner",
            RunnerSetup(devices.tracker, key, devices.priority, HELD_SECONDS, _WAIT_SECONDS),
            runtime_only,
        )
        for key in devices.keys
    ]

    def taken(what: Taken) -> str:
        devices.taken(what.port, what.offer)
        return devices.name_of(what.port)

    return Crew(
        [Child(BUILDER, setup) for _ in range(builders)],
        runners,
        search.heard,
        taken,
    )


class _Recorder:
    """Logs every batch and reports the progress."""

    def __init__(
        self, request: BuildRequest, devices: Pool, log: TuningLog, stage: Stage, effort: Effort
    ) -> None:
        self.search: Search
        self._target = request.board.target
        self._devices = devices
        self._log = log
        self._stage = stage
        self._effort = effort
        self._shown = 0
        self._own_kept: set[str] = set()

    def begin(self, known: int) -> None:
        if self._effort.trials is not None:
            self._show(min(known, self._effort.trials), f"{known} trials known from earlier")

    def told(self, outcome: BatchOutcome) -> None:
        self._log.add(self._records(outcome), self._progress())
        self._show(
            self.search.trials if self._effort.trials is not None else round(self.search.seconds),
            self._detail(outcome.standing),
        )

    def _show(self, now: int, detail: str) -> None:
        self._stage.advance(max(now - self._shown, 0), detail)
        self._shown = max(now, self._shown)

    def _records(self, outcome: BatchOutcome) -> Sequence[TuningRecord]:
        standing, batch = outcome.standing, outcome.batch
        subject = standing.task.subject
        device = batch.device or self._log.session.devices[0]
        target = record_target(self._target, device in self._devices.twins)
        workload = Workload(subject.key, target, VERSION, subject.words, subject.function or None)
        own = outcome.own_us
        found: list[tuple[Choice, float | None, str | None]] = []
        if own is not None and subject.key not in self._own_kept:
            self._own_kept.add(subject.key)
            found.append((standing.task.own, own, None))
        for place, result in enumerate(outcome.results):
            timed = batch.timed.get(place) or Timed(place, None, "device")
            best = None if result.ratio is None or own is None else result.ratio * own
            found.append((result.choice, best, timed.error))
        return [
            TuningRecord(
                id=uuid.uuid4().hex,
                workload=workload,
                session=self._log.session.id,
                device=device,
                measured_at=now(),
                choice=choice_as_json(choice),
                best_us=best,
                own_us=own,
                error=error,
            )
            for choice, best, error in found
        ]

    def _progress(self) -> TuningProgress:
        own, best = totals(outcomes(self.search.standings))
        failed = sum(self.search.errors.values())
        return TuningProgress(
            self._log.session.id, now(), self.search.new_trials, failed, own, best
        )

    def _detail(self, standing: Standing) -> str:
        """Describe the progress: tasks, trials, the kernel's speed, the model's gain, errors."""
        search = self.search
        done = sum(one.finished for one in search.standings.values())
        own, best = totals(outcomes(search.standings))
        parts = [f"{done}/{len(search.standings)} kernels done", f"{search.new_trials} trials"]
        if standing.own_us is not None and standing.best_us is not None:
            giga = standing.task.operations / 1e3
            parts.append(
                f"{standing.task.subject.words}: {giga / standing.best_us:.3g} GFLOP/s "
                f"(own {giga / standing.own_us:.3g})"
            )
        if best:
            parts.append(f"model {own / best:.2f}x")
        if self._effort.seconds is not None:
            left = max(self._effort.seconds - search.seconds, 0)
            parts.append(f"{duration(left)} left")
        elif self._effort.trials is not None and search.new_trials:
            each = search.seconds / search.new_trials
            left = max(self._effort.trials - search.trials, 0) * each
            parts.append(f"about {duration(left)} left")
        failed = ", ".join(f"{count} {kind}" for kind, count in sorted(search.errors.items()))
        return "; ".join([*parts, *([f"failed: {failed}"] if failed else [])])


def _report(
    request: BuildRequest,
    devices: Pool,
    search: Search,
    session: str,
    known: int,
    effort: Effort,
) -> TuneReport:
    found = outcomes(search.standings)
    own, best = totals(found)
    if effort.trials is not None and search.trials >= effort.trials:
        ended = "trials"
    elif effort.seconds is not None and search.seconds >= effort.seconds:
        ended = "time"
    else:
        ended = "nothing better to be expected"
    return TuneReport(
        model=request.source.name,
        board=request.board.name,
        target=request.board.target.as_json(),
        session=session,
        devices=devices.names,
        emulated=devices.is_emulated,
        seconds=search.seconds,
        trials=search.new_trials,
        known=known,
        errors=dict(search.errors),
        ended=ended,
        own_us=own,
        best_us=best,
        kernels=tuple(sorted(found, key=lambda one: -(one.own_us or 0) * one.calls)),
    )


def _in_words(report: TuneReport) -> str:
    better = sum(kernel.choice is not None for kernel in report.kernels)
    gain = f", {report.own_us / report.best_us:.2f}x" if report.best_us else ""
    return f"{report.trials} trials, {better} of {len(report.kernels)} kernels better{gain}"
