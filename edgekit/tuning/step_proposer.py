"""Chooses the firmwares of a microcontroller's search: each tries another way of every step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edgekit.aot.ways import VERSION, StepWays, Way, way_as_json, way_from_json
from edgekit.building.tuned_steps import WORTH_IT
from edgekit.store.tuning_runs import TuningRecord, Workload
from edgekit.tuning.recorder import Finding, Progress

Assignment = Mapping[str, Way]
"""Ways by the key of the step. Other steps take their own way."""


@dataclass
class Firmware:
    """A firmware that tries ways, and its result."""

    ways: Assignment
    device: str = ""
    own_us: Mapping[str, float] = field(default_factory=dict)
    """The time of each step's own way on this device, by the step's key."""
    step_us: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None


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


class StepProposer:
    """Proposes each new way once; a firmware that fails is halved until one way is to blame."""

    def __init__(
        self,
        steps: Sequence[StepWays],
        earlier: Sequence[TuningRecord],
        target: str,
        trial_budget: int | None,
    ) -> None:
        self.failed = 0
        self._steps = steps
        self._words = {step.key: step.words for step in steps}
        self._target = target
        self._found: list[TuningRecord | Finding] = [*earlier]
        """Results of earlier searches and of this one."""
        self._measured = 0
        candidates = candidates_of(steps, ways_in(earlier))[:trial_budget]
        self._plan = deque(Firmware(ways) for ways in firmwares(candidates))
        self.firmwares = len(self._plan)
        """The number of firmwares, if none fails."""

    @property
    def has_work(self) -> bool:
        return bool(self._plan or self._words.keys() - ways_in(self._found).keys())

    @property
    def progress(self) -> Progress:
        steps = self.tuned()
        own = sum(step.own_us * step.steps for step in steps)
        best = sum(step.best_us * step.steps for step in steps)
        return Progress(self._measured, self.failed, own, best)

    def tuned(self) -> tuple[TunedStep, ...]:
        return tuned_steps(self._steps, self._found)

    def next(self) -> Firmware | None:
        return self._plan.popleft() if self._plan else None

    def drop(self, batch: Firmware) -> None:
        self._plan.appendleft(batch)

    def learn(self, batch: Firmware) -> list[Finding]:
        if batch.error is not None and len(batch.ways) > 1:
            self._plan.extendleft(Firmware(half) for half in halves(batch.ways))
            return []
        ways = batch.ways or {step.key: step.taken for step in self._steps}
        found = [
            Finding(
                Workload(key, self._target, VERSION, self._words[key]),
                batch.device,
                way_as_json(way),
                batch.step_us.get(key),
                batch.own_us.get(key),
                batch.error,
            )
            for key, way in ways.items()
            if batch.error is not None or key in batch.step_us
        ]
        self._measured += len(found)
        self.failed += len(found) if batch.error is not None else 0
        self._found += found
        return found


def candidates_of(
    steps: Iterable[StepWays], measured: Mapping[str, frozenset[Way]]
) -> list[tuple[str, Way]]:
    """Return each way of each kind of step that was not measured before."""
    found = {
        (step.key, way): None
        for step in steps
        for way in step.others
        if way not in measured.get(step.key, frozenset())
    }
    return list(found)


def firmwares(candidates: Iterable[tuple[str, Way]]) -> Iterator[Assignment]:
    """Yield as many firmwares as the step with the most ways needs."""
    left: dict[str, list[Way]] = {}
    for key, way in candidates:
        left.setdefault(key, []).append(way)
    while left:
        yield {key: ways.pop(0) for key, ways in left.items()}
        left = {key: ways for key, ways in left.items() if ways}


def halves(assignment: Assignment) -> tuple[Assignment, Assignment]:
    """Split an assignment that failed, to find the way that is to blame."""
    items = sorted(assignment.items())
    middle = len(items) // 2
    return dict(items[:middle]), dict(items[middle:])


def ways_in(results: Iterable[TuningRecord | Finding]) -> dict[str, frozenset[Way]]:
    """Return the ways that have a result, by the step's key."""
    found: dict[str, set[Way]] = {}
    for result in results:
        way = way_from_json(result.choice)
        if way is not None:
            found.setdefault(result.workload.key, set()).add(way)
    return {key: frozenset(ways) for key, ways in found.items()}


def tuned_steps(
    steps: Sequence[StepWays], results: Sequence[TuningRecord | Finding]
) -> tuple[TunedStep, ...]:
    """Return the best way of each kind of step, the longest steps first."""
    alike = Counter(step.key for step in steps)
    tuned = []
    for step in {step.key: step for step in reversed(steps)}.values():
        own = best = None
        way = step.taken
        for result in results:
            if result.workload.key != step.key or result.best_us is None or not result.own_us:
                continue
            found = way_from_json(result.choice)
            if found == step.taken:
                own = result.best_us
            elif found is not None and (best is None or result.best_us / result.own_us < best):
                best, way = result.best_us / result.own_us, found
        if own is None:
            continue  # the time ended before it was counted
        if best is None or best >= WORTH_IT:
            best, way = 1.0, step.taken
        words = step.words
        tuned.append(TunedStep(step.key, words, step.taken, way, own, own * best, alike[step.key]))
    return tuple(sorted(tuned, key=lambda step: -step.own_us * step.steps))
