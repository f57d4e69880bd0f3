"""A kernel whose loops are put in order by a trace that a search found.

A trace says what to do up to the point where MetaSchedule would still do the same to every
schedule: which loops run on all cores, which are vectors, which are written out, and where sums
begin. That is done here as well.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from tvm import s_tir, tirx

from edgekit.compiler.schedules.trace_text import check_trace


def schedule_by_trace(schedule: s_tir.Schedule, text: str) -> None:
    """ScheduleError where the trace is not of this kernel."""
    from tvm.s_tir.schedule import Trace

    try:
        check_trace(text)
        Trace.apply_json_to_schedule(json.loads(text), schedule)
        schedule.enter_postproc()  # what follows is not the trace's own
        done = [step.apply(schedule) for step in _steps_that_follow()]
    except s_tir.ScheduleError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError) as error:
        # What doesn't fit fails in many ways; none of them is anything but a trace that is not its.
        raise s_tir.ScheduleError(f"the trace is not of this kernel: {error}") from error
    if not all(done):
        raise s_tir.ScheduleError("the trace is not of this kernel")


def trace_text(schedule: s_tir.Schedule) -> str:
    """What `schedule_by_trace` makes the same schedule of."""
    trace = schedule.trace.simplified(remove_postproc=True)
    return json.dumps(_plain(trace.as_json()), separators=(",", ":"))


@lru_cache(maxsize=1)
def _steps_that_follow() -> tuple[Any, ...]:
    """Without the one that lays out inputs anew: they lie as they are packed."""
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
