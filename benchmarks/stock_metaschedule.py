"""TVM's own MetaSchedule with its own RPC runner and JSON database, in a process of its own.

    python -m benchmarks.stock_metaschedule MODEL FOLDER TRACKER_PORT TRIALS

It searches for each kernel of the model that `edgekit tune` would make traces of, and prints a line
for each batch that came back: how many of its candidates were measured, and why others were not.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.stock_cures import import_intrinsics_quickly
from edgekit.api.functions import make_request
from edgekit.base.tvm_compat import load_tensor_intrinsics, load_tvm
from edgekit.rpc.protocol import LOOPBACK
from edgekit.tuning.messages import FindTasks

KEY = "here"
SERVERS = 2
EFFORT = {"number": 1, "repeat": 5, "min_repeat_ms": 4}
"""The runs of each candidate: those of edgekit for one neither hopeless nor promising."""
_SESSION_SECONDS = 60
_LAST_WORDS = 200


@dataclass(frozen=True)
class Came:
    """Back from a batch."""

    seconds: float
    """Since the search began."""
    measured: int
    failed: dict[str, int]
    """The causes by the last line of the output."""


def main() -> None:
    model, work, port, trials = sys.argv[1:]
    search(Path(model), Path(work), int(port), int(trials))


def search(model: Path, work: Path, port: int, trials: int) -> None:
    tvm = load_tvm()
    load_tensor_intrinsics()
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.meta_schedule.builder import LocalBuilder
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RPCConfig, RPCRunner

    from edgekit.compiler.schedules.machine import machine_of
    from edgekit.tuning.kernels import tasks_of

    request = make_request(model, "local", None, {}, {}, offload=())
    target = tvm.target.Target(request.board.target.as_json())
    order = FindTasks(request.source, request.board.target, request.offload, seed=0, yields=False)
    tasks = [task for task in tasks_of(order, target, machine_of(target)) if task.traced]
    contexts = [
        meta_schedule.TuneContext(
            mod=tvm.ir.load_json(task.subject.function),
            target=target,
            space_generator="post-order-apply",
            search_strategy="evolutionary",
            task_name=f"kernel{number}",
            rand_state=number + 1,
        )
        for number, task in enumerate(tasks)
    ]
    meta_schedule.tune.tune_tasks(
        tasks=contexts,
        task_weights=[float(task.calls) for task in tasks],
        work_dir=str(work),
        max_trials_global=trials,
        builder=LocalBuilder(
            max_workers=len(os.sched_getaffinity(0)),
            initializer=import_intrinsics_quickly,
        ),
        runner=RPCRunner(
            RPCConfig(LOOPBACK, port, KEY, 1, _SESSION_SECONDS),
            EvaluatorConfig(**EFFORT),
            max_workers=SERVERS,
        ),
        database=meta_schedule.database.JSONDatabase(work_dir=str(work)),
        cost_model="random",
        measure_callbacks=[
            *meta_schedule.measure_callback.MeasureCallback.create("default"),
            _telling(time.monotonic()),
        ],
    )


def _telling(began: float) -> Any:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback

    @derived_object
    class Telling(PyMeasureCallback):  # type: ignore[misc]
        def apply(
            self, scheduler: Any, task_id: int, candidates: Any, builds: Any, runs: Any
        ) -> None:
            del scheduler, task_id, candidates
            measured = sum(run.run_secs is not None for run in runs)
            failed = Counter(_reasons("build", builds)) + Counter(
                _reasons("run", [r for b, r in zip(builds, runs, strict=True) if not b.error_msg])
            )
            came = Came(time.monotonic() - began, measured, dict(failed))
            print(json.dumps(asdict(came)), flush=True)

    return Telling()


def _reasons(what: str, results: Iterable[Any]) -> Iterable[str]:
    for result in results:
        if result.error_msg:
            lines = str(result.error_msg).strip().splitlines() or ["it said nothing"]
            yield f"{what}: {lines[-1][:_LAST_WORDS]}"


if __name__ == "__main__":
    main()
