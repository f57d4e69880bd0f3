"""Runs MLPerf's LoadGen with a device as the system under test, and reads what its logs say."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.wording import counted
from edgekit.devices.carried import CarriedState
from edgekit.verbs.evaluation.classification import Classification
from edgekit.verbs.evaluation.evaluate import read_data
from edgekit.verbs.evaluation.report import Metric
from edgekit.verbs.evaluation.task import Task, own_outputs
from edgekit.verbs.mlperf.log import DetailLog, read_detail_log
from edgekit.verbs.mlperf.messages import Ended, Load, Mode, Query, Scenario, Test
from edgekit.verbs.mlperf.report import MlperfReport, Performance
from edgekit.verbs.run import real_values

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.base import RunResult, RunsBundles, Session

PREFIX = "mlperf_log_"
EMULATED = "emulated_"
"""What the names of logs of an emulator begin with, so that no checker takes them for a board's."""
RULES = "user.conf"
_MOST_IN_MEMORY = 1024
_WARMUP = 32
_FASTER = 2
"""How much faster than before a device may become."""
_TOO_FEW = "it had too few queries for its percentile; 64 are the least"
"""What LoadGen means by an invalid result without a reason."""
_MOST_TRIES = 3
"""How often a test begins if the device becomes faster than that."""
_LEAST_MILLISECONDS = 600_000
"""The least duration of a performance test, as MLPerf's rules have it."""


@dataclass(frozen=True)
class MlperfPlan:
    """What LoadGen tests, and how long."""

    data: Path
    task: str
    scenario: Scenario
    out: Path
    modes: Sequence[Mode] = ("performance", "accuracy")
    benchmark: str = "edgekit"
    """The name of MLPerf's benchmark, such as resnet50, whose rules count."""
    seconds: float | None = None
    """The least duration of the performance test; None is MLPerf's own."""
    queries: int | None = None
    """The least number of queries; None is MLPerf's own."""


def run_mlperf(
    bundle: Bundle, device: RunsBundles, plan: MlperfPlan, events: Events = SILENT
) -> MlperfReport:
    """Run LoadGen's tests. The folder is laid out as MLPerf's submissions are."""
    chosen = read_data(bundle, plan.data, plan.task)
    with device.opened(bundle, purpose="mlperf", events=events) as session:
        system = _System(bundle, session, chosen)
        is_emulated = session.measured_by != "hardware"
        rules = _write_rules(plan, system.warm_up(plan.scenario))
        found: dict[Mode, _Tested] = {}
        for mode in plan.modes:
            for _ in range(_MOST_TRIES):
                found[mode] = _test(system, plan, mode, is_emulated, events)
                reached = _too_fast(found[mode])
                if reached is None:
                    break
                _write_rules(plan, reached)
        performance = found.get("performance")
        return MlperfReport(
            bundle=bundle.path,
            board=bundle.manifest.board.name,
            device=device.name,
            measured_by=session.measured_by,
            scenario=plan.scenario,
            benchmark=plan.benchmark,
            loadgen=next(iter(found.values())).version,
            samples=len(chosen.items),
            performance=None if performance is None else _result(performance),
            accuracy=_figures(chosen, found["accuracy"].judged) if "accuracy" in found else (),
            obstacles=tuple(_obstacles(performance, is_emulated, system.is_over_a_line)),
            folder=plan.out,
            files=(rules, *(file for one in found.values() for file in one.files)),
        )


@dataclass(frozen=True)
class _Tested:
    """What a test of LoadGen's left."""

    log: DetailLog
    files: tuple[Path, ...]
    version: str
    seconds: tuple[float, ...]
    """The durations of the inferences on the device alone."""
    judged: tuple[Any, ...]


@dataclass
class _System:
    """A device as LoadGen's system under test, and a data set as its library of samples."""

    bundle: Bundle
    session: Session
    task: Task
    loaded: dict[int, Mapping[str, Array]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    judged: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._outputs = {one.spec.name: one.spec for one in self.bundle.manifest.outputs}
        self._own = [spec.name for spec in own_outputs(self.bundle)]
        self._state = CarriedState(self.bundle, kept=False)

    def takes_batches(self, scenario: Scenario) -> bool:
        """Whether samples go to the device together, which saves ways to another machine."""
        return scenario == "Offline" and self.is_over_a_line

    @property
    def is_over_a_line(self) -> bool:
        """Whether the device is another machine than this host."""
        return self.session.installed is not None

    def warm_up(self, scenario: Scenario) -> float:
        """Return the seconds of a sample, with the way to the device and back: the least seen of a
        stream, and the mean of a batch."""
        known = range(min(_WARMUP, len(self.task.items)))
        self.load(known)
        places = list(islice(cycle(known), _WARMUP))
        if self.takes_batches(scenario):
            begun = time.monotonic()
            for _ in self._run(places):
                pass
            return (time.monotonic() - begun) / len(places)
        took = []
        samples = (self.loaded[place] for place in places)
        with closing(self.session.run_one_by_one(samples)) as results:
            next(results)
            begun = time.monotonic()
            for _ in results:
                took.append(time.monotonic() - begun)
                begun = time.monotonic()
        return min(took)

    def load(self, places: Sequence[int]) -> None:
        samples = self.task.samples([self.task.items[place] for place in places])
        self.loaded = {
            place: self._state.complete(sample.inputs)
            for place, sample in zip(places, samples, strict=True)
        }

    def answers(self, places: Sequence[int]) -> Iterator[bytes]:
        """Run samples as one query that is known whole."""
        for place, result in zip(places, self._run(places), strict=True):
            yield self.answer(place, result)

    def _run(self, places: Iterable[int]) -> Iterator[RunResult]:
        with closing(self.session.run_all(self.loaded[place] for place in places)) as results:
            yield from results

    def answer(self, place: int, result: RunResult) -> bytes:
        """Judge a result, and return what LoadGen's log of accuracy keeps of it."""
        self.seconds.append(result.seconds)
        specs = self._outputs
        real = {name: real_values(result.outputs[name], specs[name]) for name in self._own}
        judged = self.judged[place] = self.task.judge(self.task.items[place], real)
        if isinstance(self.task, Classification):
            return struct.pack("<q", judged[1])  # as MLPerf's own script for ImageNet reads it
        flat = [np.asarray(real[name], "<f4").reshape(-1) for name in self._own]
        return bytes(np.concatenate(flat).tobytes())


def _too_fast(tested: _Tested) -> float | None:
    """Return the seconds of a sample if LoadGen made too few queries for so fast a device."""
    log = tested.log
    reason = str(log.value("result_invalid_reason") or "")
    throughput = log.value("result_samples_per_second")
    if "pre-generates" not in reason:
        return None
    return 1 / float(throughput) if throughput else min(tested.seconds)


def _write_rules(plan: MlperfPlan, seconds: float) -> Path:
    """Write user.conf: what LoadGen expects of the device, and where a test is shorter."""
    rules = plan.out / RULES
    with storage_errors("write MLPerf's settings", rules):
        plan.out.mkdir(parents=True, exist_ok=True)
        write_atomically(rules, _rules(plan, seconds))
    return rules


def _rules(plan: MlperfPlan, seconds: float) -> str:
    expected = max(seconds / _FASTER, 1e-6)  # LoadGen makes too few queries for a faster device
    lines = [
        f"*.SingleStream.target_latency = {expected * 1e3:.6f}",
        f"*.Offline.target_qps = {1 / expected:.6f}",
    ]
    if plan.seconds is not None:
        lines.append(f"*.{plan.scenario}.min_duration = {round(plan.seconds * 1e3)}")
    if plan.queries is not None:
        lines.append(f"*.{plan.scenario}.min_query_count = {plan.queries}")
    return "\n".join(lines) + "\n"


def _test(
    system: _System, plan: MlperfPlan, mode: Mode, is_emulated: bool, events: Events
) -> _Tested:
    run = Path("performance/run_1") if mode == "performance" else Path("accuracy")
    logs = plan.out / plan.scenario / run
    with storage_errors("make the folder of the logs", logs):
        logs.mkdir(parents=True, exist_ok=True)
    prefix = f"{EMULATED if is_emulated and mode == 'performance' else ''}{PREFIX}"
    samples = len(system.task.items)
    in_memory = min(samples, _MOST_IN_MEMORY)
    rules = (plan.out / RULES).resolve()
    test = Test(
        *(plan.scenario, mode, plan.benchmark, rules, samples, in_memory, logs.resolve(), prefix)
    )
    system.seconds.clear()
    system.judged.clear()
    total = samples if mode == "accuracy" else None
    with (
        Child("edgekit.verbs.mlperf.loadgen_process", setup=test) as child,
        events.stage(f"test {mode} by LoadGen, {plan.scenario}", total) as stage,
    ):
        try:
            child.start()
            version = _serve(child, system, plan.scenario, stage.advance)
        except ChildGone as gone:
            raise DeviceError(
                f"the process of LoadGen ended: {gone.reason}",
                hint="run it again; its logs are not whole",
                details=gone.lines[-8:],
            ) from gone
        stage.result = counted(len(system.seconds), "sample")
    parts = ["summary.txt", "detail.txt", *(["accuracy.json"] if mode == "accuracy" else [])]
    files = [logs / f"{prefix}{part}" for part in parts]
    judged = tuple(system.judged[place] for place in sorted(system.judged))
    if mode == "accuracy" and isinstance(system.task, Classification):
        files.append(logs / "accuracy.txt")
        with storage_errors("write the accuracy", files[-1]):
            write_atomically(files[-1], _accuracy_text(judged))
    return _Tested(read_detail_log(files[1]), tuple(files), version, tuple(system.seconds), judged)


def _serve(child: Child, system: _System, scenario: Scenario, advance: Callable[[], None]) -> str:
    """Answer LoadGen until its test ends. Return its version."""
    asked: list[int] = []
    in_batches = system.takes_batches(scenario)

    def one_after_another() -> Iterator[Mapping[str, Array]]:
        while True:
            yield system.loaded[asked.pop()]

    with closing(system.session.run_one_by_one(one_after_another())) as results:
        while True:
            message = child.receive()
            if isinstance(message, Ended):
                return message.version
            if isinstance(message, Load):
                system.load(message.places)
                asked.append(message.places[0])
                next(results)  # the model is loaded when the clock starts
                child.send(None)
                continue
            assert isinstance(message, Query)
            if in_batches:
                for answer in system.answers(message.places):
                    child.send(answer)
                    advance()
                continue
            for place in message.places:
                asked.append(place)
                child.send(system.answer(place, next(results)))
                advance()


def _result(tested: _Tested) -> Performance:
    log = tested.log
    percentile = log.value("result_90.00_percentile_latency_ns")
    is_stream = log.value("effective_scenario") == "SingleStream"
    valid = log.value("result_validity") == "VALID"
    reason = str(log.value("result_invalid_reason") or _TOO_FEW)
    return Performance(
        valid=valid,
        reason=None if valid else reason,
        latency=float(percentile) / 1e9 if is_stream and percentile is not None else None,
        throughput=log.value("result_samples_per_second"),
        queries=int(log.value("result_query_count") or len(tested.seconds)),
        seconds=median(tested.seconds),
        errors=log.errors,
    )


def _figures(task: Task, judged: Sequence[Any]) -> tuple[Metric, ...]:
    values = task.summarise(judged)
    return tuple(Metric(name, figure, values[name]) for name, figure in task.figures.items())


def _accuracy_text(judged: Sequence[Sequence[int]]) -> str:
    good = sum(label == best for label, best, *_ in judged)
    share = 100 * good / len(judged)
    return f"accuracy={share:.3f}%, good={good}, total={len(judged)}\n"


def _obstacles(tested: _Tested | None, is_emulated: bool, over_a_line: bool) -> Iterator[str]:
    """Say what the rules of MLPerf have against the logs, as far as edgekit knows."""
    if tested is None:
        return
    if is_emulated:
        yield f"the times are not the board's: its logs begin with {EMULATED}"
    if over_a_line:
        yield "the times hold the way to the board: LoadGen runs on this host"
    least = tested.log.value("effective_min_duration_ms")
    if least is not None and least < _LEAST_MILLISECONDS:
        yield f"it was told to last {least / 1000:g} s, and the rules ask for 600 s"
    yield from tested.log.errors
