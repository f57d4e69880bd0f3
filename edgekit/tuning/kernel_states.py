"""The state of each kernel's search, and the choice of the next kernel.

Pure logic. Times are relative to the rule's own way at the same moment, so that devices and hours
can be compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgekit.building.tuned_kernels import WORTH_IT
from edgekit.compiler.schedules.choices import Choice, TraceChoice, choice_from_json
from edgekit.store.tuning_runs import TuningRecord
from edgekit.tuning.batches import Result
from edgekit.tuning.messages import Task

_PATIENCE = 64
"""Trials without an improvement after which a kernel is finished."""
_HOPE, _LITTLE_HOPE = 0.3, 0.06
"""The expected gain of an untried kernel, as a share of its time; little for traces of products."""
_SAME = 0.005
"""The smallest gain that counts as an improvement."""


@dataclass
class KernelState:
    """The state of one task."""

    task: Task
    own_us: float | None = None
    """The first measured time of the rule's own way."""
    assumed_us: float | None = None
    """The same, measured only for a very similar kernel."""
    own_requested: bool = False
    best: Choice | None = None
    best_ratio: float = 1.0
    """The best time relative to the rule's own, below one only beyond noise."""
    trials: int = 0
    """Candidates measured or failed, including those of earlier searches."""
    new_trials: int = 0
    """Candidates of this search."""
    under_way: int = 0
    since_better: int = 0
    exhausted: bool = False
    """Whether there is nothing more to propose."""
    broken: str = ""
    """The reason why not even the rule's own way can be measured."""
    results: list[Result] = field(default_factory=list)
    suggested: list[Choice] = field(default_factory=list)
    """Choices that were measured elsewhere without the rule's own way, to be tried."""
    failed: Counter[str] = field(default_factory=Counter)
    gains: list[float] = field(default_factory=list)
    """The gain of each batch, as a share of the best time."""

    @property
    def key(self) -> str:
        return self.task.key

    @property
    def finished(self) -> bool:
        return bool(self.broken) or self.exhausted or self.since_better >= _PATIENCE

    @property
    def hope(self) -> float:
        return _HOPE if self.task.problem_key is None else _LITTLE_HOPE

    @property
    def best_us(self) -> float | None:
        own = self.own_us or self.assumed_us
        return None if own is None else own * self.best_ratio

    def measured(self, own_us: float | None, results: Sequence[Result]) -> bool:
        """Take the results of a batch and return whether there was an improvement."""
        self.own_us = self.own_us or own_us
        if not results:
            return False
        before = self.best_ratio
        self.trials += len(results)
        self.new_trials += len(results)
        for result in results:
            self._take(result)
            self.failed.update(() if result.error is None else (result.error,))
        gained = 1 - self.best_ratio / before
        self.gains.append(gained)
        if gained > _SAME:
            self.since_better = 0
            return True
        self.since_better += len(results)
        return False

    def remember(self, records: Iterable[TuningRecord]) -> int:
        """Take the records of earlier searches and return how many trials they hold."""
        count = 0
        for record in records:
            try:
                choice = choice_from_json(record.choice)
            except ValueError:
                continue  # of a choice that no longer exists
            if is_own(choice):
                self.own_us = self.own_us or record.best_us
                continue
            if record.own_us is None and record.best_us is not None:
                self.suggested.append(choice)
                continue
            count += 1
            self.trials += 1
            if record.best_us is not None and record.own_us is not None and not record.error:
                self.own_us = self.own_us or record.own_us
                self._take(Result(choice, record.best_us / record.own_us))
            else:
                self._take(Result(choice, None))
        return count

    def tried(self) -> set[Choice]:
        return {result.choice for result in self.results}

    def better(self) -> list[Choice]:
        """Return the choices faster than the rule's own beyond noise, the fastest first."""
        timed = [(r.ratio, r.choice) for r in self.results if r.ratio is not None]
        timed.sort(key=lambda item: item[0])
        return [choice for ratio, choice in timed if ratio < WORTH_IT]

    def ranked(self) -> list[Choice]:
        """Return the choices faster than the rule's own, the fastest first, then the rule's own."""
        timed = sorted(
            ((r.ratio, place) for place, r in enumerate(self.results) if r.ratio is not None),
        )
        found = [self.results[place].choice for ratio, place in timed if ratio < 1]
        return [*found, self.task.own]

    def _take(self, result: Result) -> None:
        self.results.append(result)
        if result.ratio is None or not math.isfinite(result.ratio):
            return
        if result.ratio < min(self.best_ratio, WORTH_IT):
            self.best_ratio = result.ratio
            self.best = result.choice


def is_own(choice: Choice) -> bool:
    return choice == type(choice)()


def share_of(state: KernelState, unit: float) -> float:
    """Return a kernel's microseconds in one inference; unmeasured ones take `unit` per work."""
    best = state.best_us
    if best is None:
        return state.task.work * unit * state.task.calls
    return best * state.task.calls


def promise(state: KernelState, unit: float) -> float:
    """Return the microseconds that the next batch is expected to gain for the model."""
    share = share_of(state, unit)
    recent = state.gains[-3:]
    seen = sum(recent) / len(recent) if recent else state.hope
    pending = state.under_way + state.since_better
    hoped = state.hope / (1 + (state.trials + pending) / 16)
    return share * max(seen / (1 + state.under_way / 16), hoped)


def next_kernel(states: Iterable[KernelState]) -> KernelState | None:
    """Return the kernel with the largest expected gain, None if all are finished."""
    open_ones = [state for state in states if not state.finished]
    if not open_ones:
        return None
    unit = unit_of(open_ones)
    return max(open_ones, key=lambda state: promise(state, unit))


def unit_of(states: Iterable[KernelState]) -> float:
    """Return the microseconds per unit of work of the measured kernels."""
    known = [(s.own_us, s.task.work) for s in states if s.own_us is not None]
    work = sum(amount for _, amount in known)
    return sum(time for time, _ in known) / work if work else 1e-4


@dataclass(frozen=True)
class KernelOutcome:
    """The result of a kernel's search."""

    key: str
    words: str
    calls: int
    own_us: float | None
    best_us: float | None
    choice: Choice | None
    """The best choice; None if the rule's own stands."""
    trials: int
    failed: int
    operations: int

    @property
    def gain(self) -> float:
        """The rule's own time over the best time."""
        if self.own_us is None or self.best_us is None:
            return 1.0
        return self.own_us / self.best_us


def outcomes(states: Mapping[str, KernelState]) -> list[KernelOutcome]:
    """Return the results; of a product's two tasks the better one counts."""
    found = []
    parents = {s.task.problem_key for s in states.values() if s.task.problem_key is not None}
    for state in states.values():
        if state.key in parents:
            continue
        both = [state]
        if state.task.problem_key is not None:
            both.append(states[state.task.problem_key])
        best = min(both, key=lambda one: one.best_ratio)
        own_us = next((one.own_us for one in both if one.own_us is not None), None)
        found.append(
            KernelOutcome(
                key=best.key,
                words=both[-1].task.subject.words,
                calls=state.task.calls,
                own_us=own_us,
                best_us=None if own_us is None else own_us * best.best_ratio,
                choice=best.best,
                trials=sum(one.trials for one in both),
                failed=sum(sum(one.failed.values()) for one in both),
                operations=state.task.operations,
            )
        )
    return found


def totals(found: Iterable[KernelOutcome]) -> tuple[float, float]:
    """Return the microseconds of one inference: by the rules, and with the best choices."""
    timed = [one for one in found if one.own_us is not None and one.best_us is not None]
    own = sum((one.own_us or 0.0) * one.calls for one in timed)
    best = sum((one.best_us or 0.0) * one.calls for one in timed)
    return own, best


def traces_of(results: Iterable[Result], own_us: float) -> list[tuple[str, float]]:
    """Return the measured traces that MetaSchedule learns from."""
    return [
        (result.choice.trace, result.ratio * own_us)
        for result in results
        if isinstance(result.choice, TraceChoice) and result.ratio is not None
    ]
