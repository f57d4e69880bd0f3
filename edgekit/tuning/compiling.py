"""Has a batch compiled, and finds the candidates that end the compiler."""

from __future__ import annotations

import shutil
from dataclasses import replace

from edgekit.base.child import Child, ChildGone
from edgekit.tuning.batches import OWN, Batch
from edgekit.tuning.messages import BatchOrder, BuildFailure, BuiltBatch, ErrorKind

_BUILD_SECONDS = 60.0
_BUILD_SECONDS_EACH = 4.0


def compiled(child: Child, batch: Batch) -> BuiltBatch:
    """Build all candidates at once, or one by one if that ended the compiler."""
    order = BatchOrder(batch.subject, batch.choices, batch.folder / "all", batch.inputs)
    order.folder.mkdir(parents=True)
    answer = _answer(child, order)
    if isinstance(answer, BuiltBatch):
        return answer
    good, failures = [], []
    for place, choice in enumerate(batch.choices):
        alone = replace(order, choices=(choice,), folder=batch.folder / f"alone{place}")
        alone.folder.mkdir()
        tried = _answer(child, alone)
        if isinstance(tried, BuiltBatch) and not tried.failures:
            good.append(place)
        elif isinstance(tried, BuiltBatch):
            failures += [replace(failure, place=place) for failure in tried.failures]
        else:
            failures.append(replace(tried, place=place))
        shutil.rmtree(alone.folder, ignore_errors=True)
    again = replace(
        order, choices=tuple(batch.choices[p] for p in good), folder=batch.folder / "good"
    )
    again.folder.mkdir()
    rest = _answer(child, again)
    if not isinstance(rest, BuiltBatch):
        lost = [replace(rest, place=place) for place in (OWN, *good)]
        empty = batch.folder / "nothing.so"
        return BuiltBatch(empty, batch.inputs, batch.subject.output, (), (*failures, *lost))
    functions = tuple(
        replace(f, place=f.place if f.place == OWN else good[f.place]) for f in rest.functions
    )
    more = [replace(f, place=f.place if f.place == OWN else good[f.place]) for f in rest.failures]
    return replace(rest, functions=functions, failures=(*failures, *more))


def _answer(child: Child, order: BatchOrder) -> BuiltBatch | BuildFailure:
    seconds = _BUILD_SECONDS + _BUILD_SECONDS_EACH * len(order.choices)
    try:
        answer = child.ask(order, seconds)
    except ChildGone as gone:
        kind: ErrorKind = "timeout" if gone.silent else "compile"
        return BuildFailure(OWN, kind, gone.reason)
    assert isinstance(answer, BuiltBatch)
    return answer
