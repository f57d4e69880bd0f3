"""MetaSchedule's evolutionary search for one kernel: it proposes schedules to measure."""

from __future__ import annotations

import json
from typing import Any

import tvm_ffi
from tvm import s_tir
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.mutator import Mutator
from tvm.s_tir.meta_schedule.postproc import Postproc
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, MeasureCandidate
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

from edgekit.compiler.schedules.trace import schedule_by_trace, trace_text
from edgekit.tuning.cost_model import RidgeModel

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
