"""What is known of a kernel while it is searched for, and which kernel comes next.

Pure: hears what was measured, and decides. Times of one kernel are told relative to its rule's own
of the same moment, so that devices and hours can be compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgekit.building.tuned_kernels import WORTH_IT
from edgekit.compiler.schedules.choices import Choice, TraceChoice, choice_from_json
from edgekit.store.tuning_runs import TuningRecord
from edgekit.tuning.work import Task

_PATIENCE = 64
"""Trials of a kernel without anything better, after which it is left alone."""
_HOPE, _LITTLE_HOPE = 0.3, 0.06
"""Of a kernel's time: what may be hoped to be gained where nothing was tried yet. Less of products
by traces: hardly any is as good as what the rules for products make."""
_SAME = 0.005
"""What is nearer to the best than this is nothing better."""


@dataclass(frozen=True)
class Result:
    """One candidate of a kernel: a ratio against the rule's own, or why there is none."""

    choice: Choice
    ratio: float | None


@dataclass
class Standing:
    """One task under way."""

    task: Task
    own_us: float | None = None
    """The rule's own, as it was measured first."""
    assumed_us: float | None = None
    """The same, where only a kernel that is much like this one was measured."""
    asked_for_own: bool = False
    best: Choice | None = None
    best_ratio: float = 1.0
    """Below one only where something is faster than the rule's own by more than noise."""
    trials: int = 0
    """Candidates that are measured or have failed, earlier searches' included."""
    new_trials: int = 0
    """Of this search."""
    under_way: int = 0
    since_better: int = 0
    exhausted: bool = False
    """There is nothing more to propose."""
    broken: str = ""
    """Why not even the rule's own way can be measured."""
    results: list[Result] = field(default_factory=list)
    suggested: list[Choice] = field(default_factory=list)
    """What others measured without the rule's own beside it: worth a trial."""
    failed: Counter[str] = field(default_factory=Counter)
    gains: list[float] = field(default_factory=list)
    """Of the latest batches: how much of the best time was gained."""

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

    def measured(self, own_us: float, results: Sequence[Result]) -> bool:
        """A batch; gives whether something better was found."""
        if self.own_us is None:
            self.own_us = own_us
        if not results:
            return False
        before = self.best_ratio
        for result in results:
            self.trials += 1
            self.new_trials += 1
            self._take(result)
        gained = 1 - self.best_ratio / before
        self.gains.append(gained)
        if gained > _SAME:
            self.since_better = 0
            return True
        self.since_better += len(results)
        return False

    def remember(self, records: Iterable[TuningRecord]) -> int:
        """What earlier searches measured; gives how many there were."""
        count = 0
        for record in records:
            try:
                choice = choice_from_json(record.choice)
            except ValueError:
                continue  # of a field that is no more
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

    def ranked(self) -> list[Choice]:
        """What was measured, the fastest first; the rule's own where nothing is faster."""
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


def share_of(standing: Standing, unit: float) -> float:
    """Microseconds that the model spends on a kernel, once for each inference. `unit` is for those
    that were never measured: microseconds for a piece of work, as with the others."""
    best = standing.best_us
    if best is None:
        return standing.task.work * unit * standing.task.calls
    return best * standing.task.calls


def promise(standing: Standing, unit: float) -> float:
    """Microseconds that the next batch may be hoped to gain for the model."""
    share = share_of(standing, unit)
    recent = standing.gains[-3:]
    seen = sum(recent) / len(recent) if recent else standing.hope
    pending = standing.under_way + standing.since_better
    hoped = standing.hope / (1 + (standing.trials + pending) / 16)
    return share * max(seen / (1 + standing.under_way / 16), hoped)


def next_task(standings: Iterable[Standing]) -> Standing | None:
    """The kernel where the next trials gain most for the model; None where all are finished."""
    open_ones = [standing for standing in standings if not standing.finished]
    if not open_ones:
        return None
    unit = unit_of(open_ones)
    return max(open_ones, key=lambda standing: promise(standing, unit))


def unit_of(standings: Iterable[Standing]) -> float:
    """Microseconds for a piece of work, as far as is known."""
    known = [(s.own_us, s.task.work) for s in standings if s.own_us is not None]
    work = sum(amount for _, amount in known)
    return sum(time for time, _ in known) / work if work else 1e-4


@dataclass(frozen=True)
class KernelOutcome:
    """A kernel of the model, in the end."""

    key: str
    words: str
    calls: int
    own_us: float | None
    best_us: float | None
    choice: Choice | None
    """None where the rule's own stands."""
    trials: int
    failed: int
    operations: int

    @property
    def gain(self) -> float:
        """1.2 where it takes a fifth more time without."""
        if self.own_us is None or self.best_us is None:
            return 1.0
        return self.own_us / self.best_us


def outcomes(standings: Mapping[str, Standing]) -> list[KernelOutcome]:
    """Of a product that has two tasks, the better one counts."""
    found = []
    parents = {s.task.problem_key for s in standings.values() if s.task.problem_key is not None}
    for standing in standings.values():
        if standing.key in parents:
            continue
        both = [standing]
        if standing.task.problem_key is not None:
            both.append(standings[standing.task.problem_key])
        best = min(both, key=lambda one: one.best_ratio)
        own_us = next((one.own_us for one in both if one.own_us is not None), None)
        found.append(
            KernelOutcome(
                key=best.key,
                words=both[-1].task.subject.words,
                calls=standing.task.calls,
                own_us=own_us,
                best_us=None if own_us is None else own_us * best.best_ratio,
                choice=best.best,
                trials=sum(one.trials for one in both),
                failed=sum(sum(one.failed.values()) for one in both),
                operations=standing.task.operations,
            )
        )
    return found


def totals(found: Iterable[KernelOutcome]) -> tuple[float, float]:
    """Microseconds of one inference: by the rules, and with the best that is known."""
    timed = [one for one in found if one.own_us is not None and one.best_us is not None]
    own = sum((one.own_us or 0.0) * one.calls for one in timed)
    best = sum((one.best_us or 0.0) * one.calls for one in timed)
    return own, best


def traces_of(results: Iterable[Result], own_us: float) -> list[tuple[str, float]]:
    """What MetaSchedule learns from."""
    return [
        (result.choice.trace, result.ratio * own_us)
        for result in results
        if isinstance(result.choice, TraceChoice) and result.ratio is not None
    ]
