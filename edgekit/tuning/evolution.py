"""MetaSchedule's evolutionary search for one kernel: it proposes schedules to measure."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tvm_ffi
from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule.cost_model import PyCostModel
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.meta_schedule.mutator import Mutator
from tvm.s_tir.meta_schedule.postproc import Postproc
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, MeasureCandidate
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

from edgekit.base.arrays import Array
from edgekit.compiler.schedules.trace import schedule_by_trace, trace_text

_POPULATION = 64
_UNMEASURED = 24
_GENERATIONS = 2
_AT_A_TIME = 32
"""Schedules that one search gives; surplus ones answer the next request."""
_ENDLESS = 1 << 20
_ATTEMPTS = 3
"""Searches in a row without a new schedule after which there are no more."""


class Evolution:
    def __init__(self, function: Any, target: Any, seed: int) -> None:
        self._target = target
        self._context = meta_schedule.TuneContext(
            mod=function,
            target=target,
            space_generator=PostOrderApply(
                sch_rules=ScheduleRule.create("llvm"),
                postprocs=Postproc.create("llvm"),
                mutator_probs=Mutator.create("llvm"),
            ),
            search_strategy=EvolutionarySearch(
                population_size=_POPULATION,
                init_min_unmeasured=_UNMEASURED,
                genetic_num_iters=_GENERATIONS,
            ),
            num_threads=1,
            rand_state=seed + 1,
        )
        self._database = MemoryDatabase()
        self._workload = self._database.commit_workload(self._context.mod)
        self._model = RidgeModel(seed)
        self._seen: set[int] = set()
        self._waiting: dict[str, MeasureCandidate] = {}
        self._begun = False
        self._ready: list[str] = []

    def propose(self, count: int) -> list[str]:
        """Return up to `count` schedules that were not proposed before."""
        for _ in range(_ATTEMPTS):
            if self._ready:
                break
            for candidate in self._generated():
                number = int(tvm_ffi.structural_hash(candidate.sch.mod))
                if number not in self._seen:
                    self._seen.add(number)
                    text = trace_text(candidate.sch)
                    self._waiting[text] = candidate
                    self._ready.append(text)
        found, self._ready = self._ready[:count], self._ready[count:]
        return found

    def learn(self, measured: tuple[tuple[str, float], ...]) -> None:
        """Learn from measured traces, also from those of earlier searches."""
        learned = []
        for text, microseconds in measured:
            known = self._waiting.pop(text, None)
            made = self._made_again(text) if known is None else (known, known.sch.trace)
            if made is None:
                continue
            candidate, trace = made
            learned.append((candidate, microseconds))
            self._database.commit_tuning_record(
                TuningRecord(
                    *(trace, self._workload, [microseconds / 1e6]),
                    *(self._target, candidate.args_info),
                )
            )
        if learned:
            candidates, times = zip(*learned, strict=True)
            self._model.learn(self._context, list(candidates), list(times))

    def _generated(self) -> list[MeasureCandidate]:
        if not self._begun:
            spaces = self._context.generate_design_space()
            self._context.pre_tuning(_ENDLESS, _AT_A_TIME, spaces, self._database, self._model)
            self._begun = True
        found = list(self._context.generate_measure_candidates() or ())
        if found:
            # MetaSchedule waits for times before it goes on; `learn` adds the real ones later.
            self._context.search_strategy.notify_runner_results(
                found, [RunnerResult([1.0], None) for _ in found]
            )
        return found

    def _made_again(self, text: str) -> tuple[MeasureCandidate, Any] | None:
        """Return the schedule of a trace, and its trace without the common postprocessing."""
        schedule, plain = (s_tir.Schedule(self._context.mod) for _ in range(2))
        try:
            schedule_by_trace(schedule, text)
        except s_tir.ScheduleError:
            return None  # a trace of another kernel with the same key
        s_tir.schedule.Trace.apply_json_to_schedule(json.loads(text), plain)
        self._seen.add(int(tvm_ffi.structural_hash(schedule.mod)))
        arguments = meta_schedule.arg_info.ArgInfo.from_entry_func(self._context.mod, False)
        return MeasureCandidate(schedule, arguments), plain.trace


_FEWEST = 12
"""The number of measured schedules below which predictions are random."""
_MOST = 2048
_RIDGE = 1.0


@derived_object
class RidgeModel(PyCostModel):  # type: ignore[misc]
    """A ridge regression for one kernel."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = np.random.default_rng(seed)
        self._features = PerStoreFeature()
        self._seen: list[Array] = []
        self._scores: list[float] = []
        self._weights: Array | None = None
        self._middle: Array | None = None
        self._scale: Array | None = None

    def load(self, path: str) -> None:
        raise NotImplementedError

    def save(self, path: str) -> None:
        raise NotImplementedError

    def update(self, context: Any, candidates: Any, results: Any) -> None:
        """Refuse: our search calls `learn` instead."""
        raise NotImplementedError

    def learn(self, context: Any, candidates: list[Any], microseconds: list[float]) -> None:
        self._seen = (self._seen + self._rows(context, candidates))[-_MOST:]
        self._scores = (self._scores + [-float(np.log(us)) for us in microseconds])[-_MOST:]
        if len(self._seen) < _FEWEST:
            return
        rows, scores = np.stack(self._seen), np.asarray(self._scores)
        self._middle = rows.mean(axis=0)
        self._scale = np.maximum(rows.std(axis=0), 1e-6)
        normal = (rows - self._middle) / self._scale
        square = normal.T @ normal + _RIDGE * np.eye(normal.shape[1])
        self._weights = np.linalg.solve(square, normal.T @ (scores - scores.mean()))

    def predict(self, context: Any, candidates: list[Any]) -> Array:
        if self._weights is None or self._middle is None or self._scale is None:
            return self._random.random(len(candidates))
        rows = np.stack(self._rows(context, candidates))
        guessed = ((rows - self._middle) / self._scale) @ self._weights
        # The search draws by these scores as weights: they must be positive.
        likely: Array = np.exp(guessed - guessed.max())
        return likely

    def _rows(self, context: Any, candidates: list[Any]) -> list[Array]:
        """Return a row per schedule: the sum and the maximum over its statements."""
        found = []
        for feature in self._features.extract_from(context, candidates):
            array = feature.numpy()
            found.append(np.concatenate([array.sum(axis=0), array.max(axis=0)]))
        return found
