"""Chooses the next candidates of a model's kernels, and takes their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from edgekit.base.events import Events
from edgekit.base.wording import microseconds
from edgekit.compiler.schedules.choices import VERSION, Choice, TraceChoice, choice_as_json
from edgekit.store.tuning_runs import Workload
from edgekit.tuning.batches import Batch
from edgekit.tuning.finder import KernelFinder
from edgekit.tuning.kernel_states import KernelState, next_kernel, outcomes, totals, traces_of
from edgekit.tuning.messages import Task
from edgekit.tuning.parameters import PARAMETERS, neighbours, together
from edgekit.tuning.recorder import Finding, Progress
from edgekit.tuning.statistics import THROTTLED

_FEWEST, _MOST = 4, 16
"""The fewest and most candidates of a batch."""
_SECONDS_A_BATCH = 8.0
"""The target time of a batch on a device, which limits its size."""
_RUNS_EACH = 18
"""Runs of an average candidate in `runner`, to estimate a batch's time before the first one."""
_DRIFTS_TOLD = 3


class KernelProposer:
    """Proposes the likely candidates, the strongest, then traces, or parameters near the best.

    The next batch is of the kernel where the model may gain most. `finder` None ends the search
    after the likely candidates. `measured_on` returns the device's name, and the target that its
    times are for; a batch that could not be built has an empty one.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        finder: KernelFinder | None,
        folder: Path,
        trial_budget: int | None,
        measured_on: Callable[[str], tuple[str, str]],
        events: Events,
    ) -> None:
        self.states = {task.key: KernelState(task) for task in tasks}
        self._finder = finder
        self._folder = folder
        self._trial_budget = trial_budget
        self._measured_on = measured_on
        self._events = events
        self._under_way: dict[int, Batch] = {}
        self._number = 0
        self._own_recorded: set[str] = set()
        self._seconds_each: dict[str, float] = {}
        self._first_own: dict[tuple[str, str], float] = {}
        self._slow: set[str] = set()
        self._drifts = 0

    @property
    def trials(self) -> int:
        """The number of trials, including those of earlier searches."""
        return sum(state.trials for state in self.states.values())

    @property
    def new_trials(self) -> int:
        return sum(state.new_trials for state in self.states.values())

    @property
    def errors(self) -> Counter[str]:
        """The number of failed candidates of this search by kind."""
        return sum((state.failed for state in self.states.values()), Counter[str]())

    @property
    def progress(self) -> Progress:
        own, best = totals(outcomes(self.states))
        return Progress(self.new_trials, self.errors.total(), own, best)

    def next(self) -> Batch | None:
        return self._survey() or self._trial_batch() if self._room() > 0 else None

    def drop(self, batch: Batch) -> None:
        del self._under_way[batch.number]
        self.states[batch.subject.key].under_way -= len(batch.choices)
        batch.clean_up()

    def learn(self, batch: Batch) -> list[Finding]:
        self.drop(batch)
        state, results = self.states[batch.subject.key], batch.results()
        if batch.seconds and batch.choices:
            each = batch.seconds / len(batch.choices)
            before = self._seconds_each.get(state.key, each)
            self._seconds_each[state.key] = (before + each) / 2
        if batch.broken:
            state.broken = batch.broken
            self._events.warn(f"{batch.subject.words} is not tuned: {batch.broken}")
        state.measured(batch.own_us, results)
        for result in results:
            if result.error == "numbers":
                words = f"{batch.subject.words}, {result.choice.words}"
                self._events.warn(f"{words}: its numbers differ; left out")
        if batch.own_us is not None:
            for other in self.states.values():
                if other.task.problem_key == state.key:
                    other.assumed_us = other.assumed_us or batch.own_us
            self._notice_slowness(batch, batch.own_us)
            if state.task.traced and self._finder is not None:
                self._finder.learn(state.key, traces_of(results, batch.own_us))
        return self._findings(state, batch)

    def _findings(self, state: KernelState, batch: Batch) -> list[Finding]:
        subject, own_us = state.task.subject, batch.own_us
        device, target = self._measured_on(batch.device)
        workload = Workload(subject.key, target, VERSION, subject.words, subject.function or None)
        found = []
        if own_us is not None and subject.key not in self._own_recorded:
            self._own_recorded.add(subject.key)
            own = choice_as_json(state.task.own)
            found.append(Finding(workload, device, own, own_us, own_us))
        for result in batch.results():
            best = None if result.ratio is None or own_us is None else result.ratio * own_us
            choice = choice_as_json(result.choice)
            found.append(Finding(workload, device, choice, best, own_us, result.error))
        return found

    def _room(self) -> int:
        """Return how many more candidates the limit allows."""
        if self._trial_budget is None:
            return _MOST
        pending = sum(len(batch.choices) for batch in self._under_way.values())
        return self._trial_budget - self.trials - pending

    def _survey(self) -> Batch | None:
        """Return a batch for the rule's own way of a kernel that is not yet timed, if any.

        These come first: their times decide the order of all else.
        """
        for state in self.states.values():
            is_timed = state.own_us or state.task.problem_key
            if not is_timed and not state.own_requested and not state.broken:
                state.own_requested = True
                return self._batch(state, ())
        return None

    def _trial_batch(self) -> Batch | None:
        if any(not batch.choices for batch in self._under_way.values()):
            return None  # surveys
        while (state := next_kernel(self.states.values())) is not None:
            choices = self._choices(state, min(self._size(state), self._room()))
            if choices:
                return self._batch(state, choices)
            if state.under_way:
                return None  # its results may suggest more
            state.exhausted = True
        return None

    def _batch(self, state: KernelState, choices: tuple[Choice, ...]) -> Batch:
        self._number += 1
        state.under_way += len(choices)
        folder = self._folder / f"batch{self._number}"
        inputs = self._folder / f"inputs{list(self.states).index(state.key)}"
        batch = Batch(self._number, state.task.subject, choices, folder, inputs)
        self._under_way[batch.number] = batch
        return batch

    def _size(self, state: KernelState) -> int:
        """Return the size of this kernel's next batch."""
        expected = _RUNS_EACH * (state.own_us or 0.0) / 1e6
        each = self._seconds_each.get(state.key, expected)
        return max(_FEWEST, min(_MOST, round(_SECONDS_A_BATCH / each) if each else _MOST))

    def _choices(self, state: KernelState, count: int) -> tuple[Choice, ...]:
        batches = [b for b in self._under_way.values() if b.subject.key == state.key]
        tried = state.tried() | {choice for batch in batches for choice in batch.choices}
        likely = dict.fromkeys((*state.task.candidates, *state.suggested))
        new = [choice for choice in likely if choice not in tried]
        if not new and not state.under_way:
            new = [choice for choice in together(state.better()) if choice not in tried]
        if new or self._finder is None:
            return tuple(new[:count])
        if state.task.traced:
            traces = [TraceChoice(text) for text in self._finder.propose(state.key, count)]
            return tuple(choice for choice in traces if choice not in tried)
        best = [choice for choice in state.ranked()[:3] if isinstance(choice, PARAMETERS)]
        for choice in neighbours(best, state.task.candidates, state.trials):
            if choice not in tried and choice != state.task.own:
                new.append(choice)
            if len(new) == count:
                break
        return tuple(new)

    def _notice_slowness(self, batch: Batch, own_us: float) -> None:
        """Warn about a device that drifts, or that is slower than at the start."""
        self._drifts += batch.drift is not None
        if batch.drift is not None and self._drifts == _DRIFTS_TOLD:
            first, last = batch.drift
            self._events.warn(
                f"{batch.device} drifts: the same kernel took {microseconds(first)} and then "
                f"{microseconds(last)}; its measurements are less reliable"
            )
        first = self._first_own.setdefault((batch.device, batch.subject.key), own_us)
        if own_us > THROTTLED * first and batch.device not in self._slow:
            self._slow.add(batch.device)
            self._events.warn(
                f"{batch.device} is slower than it was: the rule's own kernel took "
                f"{microseconds(first)}, now {microseconds(own_us)}; it may be hot, or busy"
            )
