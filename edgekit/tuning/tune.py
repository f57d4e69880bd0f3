"""Searches for faster kernels of a model, on many devices: edgekit tune, and --quick-tune.

The rule's own way of each kernel is measured along with the others, in the same minute on the same
device, and stands unless another one is faster beyond noise. Results are stored batch by batch, and
every later build uses them. A quick search tries the likely candidates only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from edgekit.base.child import Child
from edgekit.base.errors import UnsupportedModelError, UsageError
from edgekit.base.events import SILENT, Events, Stage
from edgekit.base.files import scratch_directory
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.paths import cache_dir
from edgekit.base.report import Report
from edgekit.base.wording import counted, duration, multiple, number
from edgekit.building.request import BuildRequest
from edgekit.building.tuned_kernels import TunedKernel, choices_of, record_target, tuned_kernels
from edgekit.compiler.schedules.choices import VERSION
from edgekit.cross.link import Linker
from edgekit.cross.toolchain import find_compiler
from edgekit.devices.device import Device
from edgekit.tuning.batches import Batch
from edgekit.tuning.builders import Builders, LocalBuilders
from edgekit.tuning.crew import Crew
from edgekit.tuning.finder import KernelFinder, kernels_found
from edgekit.tuning.kernel_proposer import KernelProposer
from edgekit.tuning.kernel_states import KernelOutcome, KernelState, outcomes, totals, traces_of
from edgekit.tuning.messages import BuilderSetup, FindTasks, RunnerSetup, Taken, Task
from edgekit.tuning.recorder import Limits, Searched, earlier_records, recording
from edgekit.tuning.search import Search
from edgekit.tuning.servers import Pool
from edgekit.tuning.tune_devices import HELD_SECONDS, pool_with

if TYPE_CHECKING:
    from edgekit.cluster.cluster import Cluster

BUILDER = "edgekit.tuning.builder"

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
    measured_by: Measurer
    """What measured. Results of emulators are for twins only."""
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
        gain = f", {multiple(self.own_us / self.best_us)}" if self.best_us else ""
        return f"{self.model} on {', '.join(self.devices)}: {counted(self.trials, 'trial')}{gain}"


@dataclass(frozen=True)
class Effort:
    """How much to search."""

    trials: int | None = None
    seconds: float | None = None
    again: bool = False
    """Whether to measure again what was measured before."""
    seed: int = 0


def tune(
    request: BuildRequest,
    pool: AbstractContextManager[Pool],
    effort: Effort,
    events: Events = SILENT,
    cluster: AbstractContextManager[Cluster] | None = None,
) -> TuneReport:
    """Tune a model: the likely candidates, then what evolution proposes.

    Enter `pool` and `cluster` only if there is something to tune. Without a cluster, this host
    compiles.
    """
    with _found(request, effort, events) as finder:
        if not finder.tasks:
            raise UnsupportedModelError(
                f"{request.source.name} has no kernel that could be tuned",
                hint=f"`edgekit partition` shows what is offloaded; {option('offload', 'none')} "
                "tunes that too",
            )
        return _searched(request, pool, finder.tasks, finder, effort, events, cluster)


def quick_tune(
    request: BuildRequest,
    device: Device,
    seconds: float,
    events: Events = SILENT,
    *,
    again: bool = False,
) -> tuple[BuildRequest, TuneReport | None]:
    """Try the likely candidates on a device, and return the request with all known choices.

    The report is None if the model has no kernel with candidates.
    """
    effort = Effort(seconds=seconds, again=again)
    with _found(request, effort, events) as finder:
        tasks = [replace(task, traced=False) for task in finder.tasks if task.candidates]
    pool = pool_with(request.board, device, f"tuning {request.source.name}", events)
    report = _searched(request, pool, tasks, None, effort, events) if tasks else None
    better = {
        kernel.key: TunedKernel(
            kernel.key, kernel.choice, kernel.best_us, kernel.own_us, kernel.words, device.name
        )
        for kernel in (() if report is None else report.kernels)
        if kernel.choice is not None and kernel.own_us is not None and kernel.best_us is not None
    }
    twin = device.is_emulated if report is None else report.measured_by == "emulator"
    known = tuned_kernels(request.board.target, request.store, events, twin=twin)
    return replace(request, choices=choices_of({**better, **known})), report


@contextmanager
def _found(request: BuildRequest, effort: Effort, events: Events) -> Iterator[KernelFinder]:
    if request.board.in_engine:
        raise UsageError(
            f"kernels for {request.board.name} can't be tuned: no engine takes candidates",
            hint="a build uses edgekit's own schedules",
        )
    if request.board.target.gpu is not None:
        raise UsageError(
            f"kernels for {request.board.name} can't be tuned: rules alone schedule those of a GPU",
            hint="only kernels for a CPU can be tuned",
        )
    order = FindTasks(
        replace(request.source, path=request.source.path.absolute()),
        request.board.target,
        request.offload,
        effort.seed,
        yields=request.board.is_host,
    )
    with ExitStack() as closing:
        with events.stage("find the kernels") as stage:
            finder = closing.enter_context(kernels_found(order, events))
            stage.result = f"{len(finder.tasks)} to be tuned"
        yield finder


def _searched(
    request: BuildRequest,
    pool: AbstractContextManager[Pool],
    tasks: Sequence[Task],
    finder: KernelFinder | None,
    effort: Effort,
    events: Events,
    cluster: AbstractContextManager[Cluster] | None = None,
) -> TuneReport:
    with ExitStack() as closing:
        scratch = closing.enter_context(scratch_directory(cache_dir()))
        builders = (
            local_builders(request)
            if cluster is None
            else cluster_builders(request, closing.enter_context(cluster))
        )
        devices = closing.enter_context(pool)
        if devices.is_emulated:
            names = ", ".join(devices.names)
            events.warn(f"emulated times decide for twins, and for no real board: {names}")
        target = record_target(request.board.target, devices.is_emulated)

        def measured_on(device: str) -> tuple[str, str]:
            return device or devices.names[0], target

        about = Searched(target, len(tasks), devices.measured_by, "seconds")
        limits = Limits(effort.trials, effort.seconds)
        recorder = closing.enter_context(recording(request, devices.names, about, limits, events))
        proposer = KernelProposer(tasks, finder, scratch, effort.trials, measured_on, events)
        known = 0 if effort.again else _remember(proposer, finder, target, request.store)
        stage = closing.enter_context(_stage(devices, limits, events))
        display = _Display(proposer, limits, stage)
        search = Search(proposer, recorder, limits, display.told)
        display.begin(search, known)
        crew = _crew(devices, builders, events)
        closing.callback(crew.close)
        crew.run(search)
        found = outcomes(proposer.states)
        own, best = totals(found)
        report = TuneReport(
            model=request.source.name,
            board=request.board.name,
            target=request.board.target.as_json(),
            session=recorder.session,
            devices=devices.names,
            measured_by=devices.measured_by,
            seconds=search.seconds,
            trials=proposer.new_trials,
            known=known,
            errors=dict(proposer.errors),
            ended=_ended(proposer, search, limits),
            own_us=own,
            best_us=best,
            kernels=tuple(sorted(found, key=lambda one: -(one.own_us or 0) * one.calls)),
        )
        stage.result = _in_words(report)
        return report


@contextmanager
def _stage(devices: Pool, limits: Limits, events: Events) -> Iterator[Stage]:
    names = devices.names
    where = names[0] if len(names) == 1 else counted(len(names), "device")
    total = limits.trials or (None if limits.seconds is None else round(limits.seconds))
    with events.stage(f"tune on {where}", total) as stage:
        yield stage


def _remember(
    proposer: KernelProposer, finder: KernelFinder | None, target: str, store: str | None
) -> int:
    """Load what earlier searches measured for these kernels, and return the number of trials."""
    count = 0
    for key, records in earlier_records(proposer.states, target, VERSION, store).items():
        state = proposer.states[key]
        count += state.remember(records)
        if finder is not None and state.task.traced:
            finder.learn(key, traces_of(state.results, state.own_us or 1.0))
    return count


def _crew(devices: Pool, builders: Builders, events: Events) -> Crew:
    runners = [
        Child(
            "edgekit.tuning.runner",
            setup=RunnerSetup(devices.tracker, key, devices.priority, HELD_SECONDS, _WAIT_SECONDS),
            environment={"TVM_USE_RUNTIME_LIB": "1"},
        )
        for key in devices.keys
    ]

    def taken(what: Taken) -> str:
        devices.taken(what.port, what.offer)
        return devices.name_of(what.port)

    return Crew(builders, runners, taken, events)


def local_builders(request: BuildRequest) -> Builders:
    """Return the processes of this host that compile for a search, one for each core."""
    setup = builder_setup(request)
    width = min(len(os.sched_getaffinity(0)), _MOST_BUILDERS)
    return LocalBuilders(lambda: Child(BUILDER, setup=setup), width)


def cluster_builders(request: BuildRequest, cluster: Cluster) -> Builders:
    """Return the workers of a cluster, which compile for a search."""
    from edgekit.tuning.cluster_builders import Bench, ClusterBuilders, CompileBatch

    bench = Bench(BUILDER, builder_setup(request), request.toolchain)
    return ClusterBuilders(cluster, partial(CompileBatch, bench))


def builder_setup(request: BuildRequest) -> BuilderSetup:
    linker = Linker.for_board(request.board, request.toolchain, find_compiler(request.toolchain))
    return BuilderSetup(request.board.target, linker, request.board.is_host)


class _Display:
    """Reports the progress of a search."""

    def __init__(self, proposer: KernelProposer, limits: Limits, stage: Stage) -> None:
        self._search: Search[Batch]
        self._proposer = proposer
        self._limits = limits
        self._stage = stage
        self._shown = 0

    def begin(self, search: Search[Batch], known: int) -> None:
        self._search = search
        if self._limits.trials is not None:
            self._show(
                min(known, self._limits.trials), f"{counted(known, 'trial')} known from earlier"
            )

    def told(self, batch: Batch) -> None:
        by_trials = self._limits.trials is not None
        done = self._proposer.trials if by_trials else round(self._search.seconds)
        self._show(done, self._detail(self._proposer.states[batch.subject.key]))

    def _show(self, done: int, detail: str) -> None:
        self._stage.advance(max(done - self._shown, 0), detail)
        self._shown = max(done, self._shown)

    def _detail(self, state: KernelState) -> str:
        """Describe the progress: tasks, trials, the kernel's speed, the model's gain, errors."""
        states, progress = self._proposer.states, self._proposer.progress
        done = sum(one.finished for one in states.values())
        parts = [f"{done}/{counted(len(states), 'kernel')} done", counted(progress.trials, "trial")]
        if state.own_us is not None and state.best_us is not None:
            giga = state.task.operations / 1e3
            parts.append(
                f"{state.task.subject.words}: {number(giga / state.best_us)} GFLOP/s "
                f"(own {number(giga / state.own_us)})"
            )
        if progress.best_us:
            parts.append(f"model {multiple(progress.own_us / progress.best_us)}")
        if self._limits.seconds is not None:
            left = max(self._limits.seconds - self._search.seconds, 0)
            parts.append(f"{duration(left)} left")
        errors = self._proposer.errors.items()
        failed = ", ".join(f"{count} {kind}" for kind, count in sorted(errors))
        return "; ".join([*parts, *([f"failed: {failed}"] if failed else [])])


def _ended(proposer: KernelProposer, search: Search[Batch], limits: Limits) -> str:
    if limits.trials is not None and proposer.trials >= limits.trials:
        return "trials"
    return "time" if search.is_late else "nothing better to be expected"


def _in_words(report: TuneReport) -> str:
    better = sum(kernel.choice is not None for kernel in report.kernels)
    gain = f", {multiple(report.own_us / report.best_us)}" if report.best_us else ""
    kernels = counted(len(report.kernels), "kernel")
    return f"{counted(report.trials, 'trial')}, {better} of {kernels} better{gain}"
