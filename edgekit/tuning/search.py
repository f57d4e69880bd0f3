"""The search: it chooses the next candidates, takes their results, and decides when to end."""

from __future__ import annotations

import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import DeviceError
from edgekit.compiler.schedules.choices import Choice, TraceChoice
from edgekit.tuning.child import Child, ChildGone
from edgekit.tuning.crew import Batch, Crew, DeviceNews, Fault
from edgekit.tuning.parameters import PARAMETERS, neighbours
from edgekit.tuning.standing import Result, Standing, next_task, traces_of
from edgekit.tuning.statistics import THROTTLED
from edgekit.tuning.work import Learn, Propose, Task

_FEWEST, _MOST = 4, 16
"""The fewest and most candidates of a batch."""
_SECONDS_A_BATCH = 8.0
"""The target time of a batch on a device, which limits its size."""
_RUNS_EACH = 18
"""Runs of an average candidate in `runner`, to estimate a batch's time before the first one."""
_PROPOSAL_SECONDS = 120.0
_AHEAD = 1
"""Batches that are built ahead for each runner, so that no device waits for a compiler."""
_LOOK_SECONDS = 0.2
_SECONDS_WITHOUT_DEVICES = 900.0
_DRIFTS_TOLD = 3


@dataclass(frozen=True)
class Limits:
    trials: int | None
    """The number of trials for the model, including those of earlier searches."""
    seconds: float | None


@dataclass(frozen=True)
class BatchOutcome:
    """The results of a finished batch."""

    standing: Standing
    batch: Batch
    own_us: float | None
    results: tuple[Result, ...]


class Search:
    """Plans batches; `crew` runs them, `proposer` makes traces, `told` gets the outcomes."""

    def __init__(
        self,
        tasks: Sequence[Task],
        proposer: Child,
        folder: Path,
        limits: Limits,
        told: Callable[[BatchOutcome], None],
        news: Callable[[DeviceNews], None],
    ) -> None:
        self.standings = {task.key: Standing(task) for task in tasks}
        self.errors: Counter[str] = Counter()
        self.began = time.monotonic()
        self._proposer = proposer
        self._folder = folder
        self._limits = limits
        self._told = told
        self._news = news
        self._arrived: queue.Queue[Batch | DeviceNews | Fault] = queue.Queue()
        self._under_way: dict[int, Batch] = {}
        self._number = 0
        self._parameters: dict[str, Iterator[Choice]] = {}
        self._first_own: dict[tuple[str, str], float] = {}
        self._slow: set[str] = set()
        self._drifts = 0
        self._no_more_traces = False
        self._seconds_each: dict[str, float] = {}

    @property
    def heard(self) -> Callable[[Batch | DeviceNews | Fault], None]:
        """The callback for the crew, for any thread."""
        return self._arrived.put

    @property
    def trials(self) -> int:
        """The number of trials, including those of earlier searches."""
        return sum(standing.trials for standing in self.standings.values())

    @property
    def new_trials(self) -> int:
        return sum(standing.new_trials for standing in self.standings.values())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def learn_what_is_known(self) -> None:
        """Tell MetaSchedule the earlier measurements before its first proposal."""
        for standing in self.standings.values():
            self._learn(standing, standing.results, standing.own_us or 1.0)

    def run(self, crew: Crew, runners: int, builders: int) -> None:
        most = runners * (1 + _AHEAD) + builders
        last = time.monotonic()
        while True:
            while len(self._under_way) < most and not self._is_over():
                batch = self._next_batch()
                if batch is None:
                    break
                self._under_way[batch.number] = batch
                crew.take(batch)
            if self._is_late():
                self._drop(crew.withdraw())
            if not self._under_way:
                return
            try:
                arrived = self._arrived.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if isinstance(arrived, Fault):
                raise arrived.error
            if isinstance(arrived, Batch):
                last = time.monotonic()
                self._finish(arrived, crew)
                continue
            self._news(arrived)
            if arrived.lost and time.monotonic() - last > _SECONDS_WITHOUT_DEVICES:
                raise DeviceError(
                    f"no device was available for {_SECONDS_WITHOUT_DEVICES / 60:.0f} minutes",
                    hint="the measurements are kept: run the same command when a device is back",
                )

    def _is_late(self) -> bool:
        return self._limits.seconds is not None and self.seconds >= self._limits.seconds

    def _is_over(self) -> bool:
        return self._is_late() or self._room() <= 0

    def _drop(self, batches: Sequence[Batch]) -> None:
        """Drop batches that no runner has started."""
        for batch in batches:
            del self._under_way[batch.number]
            self.standings[batch.subject.key].under_way -= len(batch.choices)
            batch.clean_up()

    def _size(self, standing: Standing) -> int:
        """Return the size of this kernel's next batch."""
        expected = _RUNS_EACH * (standing.own_us or 0.0) / 1e6
        each = self._seconds_each.get(standing.key, expected)
        return max(_FEWEST, min(_MOST, round(_SECONDS_A_BATCH / each) if each else _MOST))

    def _room(self) -> int:
        """Return how many more candidates the limit allows."""
        if self._limits.trials is None:
            return _MOST
        pending = sum(len(batch.choices) for batch in self._under_way.values())
        return self._limits.trials - self.trials - pending

    def _next_batch(self) -> Batch | None:
        return self._survey() or self._trials()

    def _survey(self) -> Batch | None:
        """Return a batch for the rule's own way of a kernel that is not yet timed, if any.

        These come first: their times decide the order of all else.
        """
        for standing in self.standings.values():
            known = standing.own_us or standing.task.problem_key
            if not known and not standing.own_requested and not standing.broken:
                standing.own_requested = True
                return self._batch(standing, ())
        return None

    def _batch(self, standing: Standing, choices: tuple[Choice, ...]) -> Batch:
        self._number += 1
        standing.under_way += len(choices)
        folder = self._folder / f"batch{self._number}"
        inputs = self._folder / f"inputs{list(self.standings).index(standing.key)}"
        return Batch(self._number, standing.task.subject, choices, folder, inputs)

    def _trials(self) -> Batch | None:
        if self._surveys_under_way():
            return None
        while (standing := next_task(self.standings.values())) is not None:
            choices = self._choices(standing, min(self._size(standing), self._room()))
            if choices:
                return self._batch(standing, choices)
            if standing.under_way:
                return None  # its results may suggest more
            standing.exhausted = True
        return None

    def _surveys_under_way(self) -> bool:
        return any(not batch.choices for batch in self._under_way.values())

    def _choices(self, standing: Standing, count: int) -> tuple[Choice, ...]:
        """Return the next choices: the rule's likely parameters, the strongest, then traces, or
        parameters near the best ones."""
        tried = standing.tried() | self._pending(standing)
        first = (*standing.task.candidates, *standing.suggested)
        likely = [choice for choice in dict.fromkeys(first) if choice not in tried]
        if likely:
            return tuple(likely[:count])
        if standing.task.traced:
            found = [TraceChoice(text) for text in self._proposed(standing, count)]
            return tuple(choice for choice in found if choice not in tried)
        best = [choice for choice in standing.ranked()[:3] if isinstance(choice, PARAMETERS)]
        near = []
        for choice in neighbours(best, standing.task.candidates, standing.trials):
            if choice not in tried and choice != standing.task.own:
                near.append(choice)
            if len(near) == count:
                break
        return tuple(near)

    def _pending(self, standing: Standing) -> set[Choice]:
        batches = [b for b in self._under_way.values() if b.subject.key == standing.key]
        return {choice for batch in batches for choice in batch.choices}

    def _proposed(self, standing: Standing, count: int) -> tuple[str, ...]:
        if self._no_more_traces:
            return ()
        try:
            found: tuple[str, ...] = self._proposer.ask(
                Propose(standing.key, count), _PROPOSAL_SECONDS
            )
        except ChildGone as gone:
            self._no_more_traces = True
            self._news(DeviceNews(f"MetaSchedule failed on {standing.task.subject.words}: {gone}"))
            return ()
        return found

    def _learn(self, standing: Standing, results: Sequence[Result], own_us: float) -> None:
        measured = tuple(traces_of(results, own_us))
        if not measured or not standing.task.traced or self._no_more_traces:
            return
        try:
            self._proposer.send(Learn(standing.key, measured))
        except ChildGone as gone:
            self._no_more_traces = True
            self._news(DeviceNews(f"MetaSchedule failed: {gone}"))

    def _finish(self, batch: Batch, crew: Crew) -> None:
        if batch.drift is not None and not batch.repeated:
            self._repeat(batch, crew)
            return
        if batch.drift is not None:
            self._drifts += 1
            if self._drifts == _DRIFTS_TOLD:
                first, last = batch.drift
                self._news(
                    DeviceNews(
                        f"{batch.device} drifts: the same kernel took {first:.3g} and then "
                        f"{last:.3g} µs; its measurements are less reliable"
                    )
                )
        del self._under_way[batch.number]
        standing = self.standings[batch.subject.key]
        standing.under_way -= len(batch.choices)
        own_us = batch.own_us
        if batch.seconds and batch.choices:
            each = batch.seconds / len(batch.choices)
            before = self._seconds_each.get(standing.key, each)
            self._seconds_each[standing.key] = (before + each) / 2
        if own_us is not None:
            for other in self.standings.values():
                if other.task.problem_key == standing.key:
                    other.assumed_us = other.assumed_us or own_us
        results = tuple(self._result(batch, place) for place in range(len(batch.choices)))
        for place in range(len(batch.choices)):
            kind = _error_of(batch, place)
            if kind is not None:
                self.errors[kind] += 1
                standing.failed[kind] += 1
        if batch.broken:
            standing.broken = batch.broken
            self._news(DeviceNews(f"{batch.subject.words} is not tuned: {batch.broken}"))
        standing.measured(own_us or standing.own_us or 1.0, results) if own_us else None
        if own_us is None and not batch.broken:
            standing.trials += len(results)
            standing.new_trials += len(results)
            standing.since_better += len(results)
            standing.results += results
        if own_us is not None:
            self._notice_throttling(batch, own_us)
            self._learn(standing, results, own_us)
        self._told(BatchOutcome(standing, batch, own_us, results))
        batch.clean_up()

    def _repeat(self, batch: Batch, crew: Crew) -> None:
        """Measure a batch again whose device was disturbed or throttled."""
        batch.repeated = True
        batch.drift = None
        for place in [p for p, timed in batch.timed.items() if timed.microseconds is not None]:
            del batch.timed[place]
        if batch.left():
            crew.measure_again(batch)
        else:
            self._finish(batch, crew)

    def _result(self, batch: Batch, place: int) -> Result:
        timed = batch.timed.get(place)
        if timed is None or timed.microseconds is None or batch.own_us is None:
            return Result(batch.choices[place], None)
        return Result(batch.choices[place], timed.microseconds / batch.own_us)

    def _notice_throttling(self, batch: Batch, own_us: float) -> None:
        first = self._first_own.setdefault((batch.device, batch.subject.key), own_us)
        if own_us > THROTTLED * first and batch.device not in self._slow:
            self._slow.add(batch.device)
            self._news(
                DeviceNews(
                    f"{batch.device} is slower than it was: the rule's own kernel took "
                    f"{first:.3g} µs, now {own_us:.3g}; it may be hot, or busy"
                )
            )


def _error_of(batch: Batch, place: int) -> str | None:
    timed = batch.timed.get(place)
    if timed is None:
        return "device"
    return timed.error
