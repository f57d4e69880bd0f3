"""Schedule a kernel by a trace that a search found.

A trace ends where MetaSchedule would do the same to every schedule: decide which loops run on all
cores, which are vectors, which are unrolled, and where sums begin. This module does that as well.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from tvm import s_tir, tirx

from edgekit.compiler.schedules.trace_text import check_trace


def schedule_by_trace(schedule: s_tir.Schedule, text: str) -> None:
    """Apply the trace; raise ScheduleError where it is not one for this kernel."""
    from tvm.s_tir.schedule import Trace

    try:
        check_trace(text)
        Trace.apply_json_to_schedule(json.loads(text), schedule)
        schedule.enter_postproc()  # subsequent steps are not the trace's own
        done = [step.apply(schedule) for step in _steps_that_follow()]
    except s_tir.ScheduleError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError) as error:
        # A mismatch fails in many ways; each means that the trace belongs to another kernel.
        raise s_tir.ScheduleError(f"the trace is not of this kernel: {error}") from error
    if not all(done):
        raise s_tir.ScheduleError("the trace is not of this kernel")


def trace_text(schedule: s_tir.Schedule) -> str:
    """Return the text from which `schedule_by_trace` makes the same schedule."""
    trace = schedule.trace.simplified(remove_postproc=True)
    return json.dumps(_plain(trace.as_json()), separators=(",", ":"))


@lru_cache(maxsize=1)
def _steps_that_follow() -> tuple[Any, ...]:
    """Return the postprocessors, without the one that rearranges inputs: they stay as packed."""
    from tvm.s_tir.meta_schedule import postproc

    return (
        postproc.DisallowDynamicLoop(),
        postproc.RewriteParallelVectorizeUnroll(),
        postproc.RewriteReductionBlock(),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, tirx.IntImm):
        return int(value)
    if isinstance(value, tirx.FloatImm):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return [_plain(item) for item in value]
