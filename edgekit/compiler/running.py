"""Running sums and products: each element with all before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as script

from edgekit.compiler.written import written


def running_of(
    given: Any,
    axis: int,
    dtype: str,
    identity: int,
    combine: Callable[[Any, Any], Any],
    *,
    exclusive: bool,
) -> Any:
    """Return the running results along an axis; `exclusive` leaves each element itself out."""
    shape = tuple(int(extent) for extent in given.shape)
    if 0 in shape:
        return te.compute(shape, lambda *_: tirx.const(identity, dtype), name="running")

    def body(ins: Any, outs: Any) -> None:
        source, target = (script.buffer_proxy(one) for one in (ins[0], outs[0]))
        with _loops(shape[:axis]) as lines:

            def at(place: Any, columns: tuple[Any, ...]) -> tuple[Any, ...]:
                return (*lines, place, *columns)

            with _loops(shape[axis + 1 :]) as columns:
                first = tirx.Cast(dtype, source[at(0, columns)])
                target[at(0, columns)] = tirx.const(identity, dtype) if exclusive else first
            with script.serial(0, shape[axis] - 1) as step, _loops(shape[axis + 1 :]) as columns:
                taken = source[at(step if exclusive else step + 1, columns)]
                target[at(step + 1, columns)] = combine(
                    target[at(step, columns)], tirx.Cast(dtype, taken)
                )

    return written("running", [given], [(shape, dtype)], body)


@contextmanager
def _loops(extents: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    with ExitStack() as entered:
        yield tuple(entered.enter_context(script.serial(0, extent)) for extent in extents)
