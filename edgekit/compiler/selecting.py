"""Kernels that select: data decides how many of their results count, and they say how many.

A result has room for the most that there can be; places beyond the count hold zero, which every
tensor has. The loops are part of the model's own code, as those that sort (passes/sorting.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as script

from edgekit.compiler.written import variable, written

_INDEX = "int64"


def places_of(mask: Any) -> Any:
    """Return the places of a vector's true elements in their order, and their number."""
    (length,) = (int(extent) for extent in mask.shape)

    def body(ins: Any, outs: Any) -> None:
        given, places, total = (script.buffer_proxy(one) for one in (ins[0], *outs))
        found = variable(_INDEX)
        found[0] = tirx.const(0, _INDEX)
        with script.serial(0, length) as place:
            # No branch: a place that does not count is overwritten by the next one.
            places[found[0]] = tirx.Cast(_INDEX, place)
            found[0] = found[0] + tirx.Cast(_INDEX, given[place])
        total[0] = found[0]
        with script.serial(0, tirx.const(length, _INDEX) - found[0]) as rest:
            places[found[0] + rest] = tirx.const(0, _INDEX)

    return written("places", [mask], [((length,), _INDEX), ((1,), _INDEX)], body)


@dataclass(frozen=True)
class Suppression:
    """What is fixed about a suppression of boxes that overlap."""

    most: int
    """The most boxes of a class, however many the operand allows."""
    is_centered: bool
    """Whether a box is its center and its size, instead of two opposite corners."""
    has_least_score: bool


def boxes_kept(what: Suppression, operands: Sequence[Any]) -> Any:
    """Return batch, class and number of the boxes that no better box of their class overlaps, and
    how many these are.

    The operands are boxes [batch, box, 4], scores [batch, class, box], and vectors of one: the most
    boxes of a class, the overlap from which a box is dropped, the score that a box has to exceed,
    and how many boxes there are. The best boxes of a class come first, of equal ones the first.
    """
    batches, classes, _ = (int(extent) for extent in operands[1].shape)
    room = batches * classes * what.most

    def body(ins: Any, outs: Any) -> None:
        _suppress(what, [script.buffer_proxy(one) for one in ins], *map(script.buffer_proxy, outs))

    made = [((room, 3), _INDEX), ((1,), _INDEX)]
    return written("boxes_kept", list(operands), made, body)


def _suppress(what: Suppression, given: Sequence[Any], kept: Any, total: Any) -> None:
    boxes, scores, most, overlap, least, number = given
    batches, classes, length = (int(extent) for extent in scores.shape)
    room = batches * classes * what.most
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    total[0] = tirx.const(0, _INDEX)
    with script.serial(0, batches) as batch, script.serial(0, classes) as kind:
        heap = script.buffer_proxy(script.alloc_buffer((length,), "int32", scope="global"))
        chosen = script.buffer_proxy(
            script.alloc_buffer((max(what.most, 1),), "int32", scope="global")
        )
        size, count, alive = (variable("int32") for _ in range(3))
        size[0], count[0] = zero, zero

        def before(first: Any, second: Any) -> Any:
            """Return whether a box comes before another: by its score, then by its number."""
            a, b = scores[batch, kind, first], scores[batch, kind, second]
            return tirx.any(a > b, tirx.all(a == b, first < second))

        with script.serial(0, tirx.Cast("int32", number[0])) as box:
            if what.has_least_score:
                with script.If(scores[batch, kind, box] > least[0]), script.Then():
                    heap[size[0]] = box
                    size[0] = size[0] + one
            else:
                heap[size[0]] = box
                size[0] = size[0] + one
        with script.serial(0, tirx.truncdiv(size[0], 2)) as step:
            _sink(heap, size, tirx.truncdiv(size[0], 2) - one - step, before)
        # The best box is always on top of the heap, until as many are kept as may be.
        with script.serial(0, size[0]):
            allowed = tirx.min(most[0], tirx.const(what.most, _INDEX))
            with script.If(tirx.Cast(_INDEX, count[0]) < allowed), script.Then():
                best = variable("int32")
                best[0] = heap[0]
                size[0] = size[0] - one
                heap[0] = heap[size[0]]
                _sink(heap, size, zero, before)
                mine = _corners(what, boxes, batch, best[0])
                alive[0] = one
                with (
                    script.serial(0, count[0]) as other,
                    script.If(alive[0] != zero),
                    script.Then(),
                ):
                    _drop_overlapping(
                        alive, mine, _corners(what, boxes, batch, chosen[other]), overlap[0]
                    )
                with script.If(alive[0] != zero), script.Then():
                    chosen[count[0]] = best[0]
                    count[0] = count[0] + one
                    row = variable(_INDEX)
                    row[0] = total[0]
                    kept[row[0], 0] = tirx.Cast(_INDEX, batch)
                    kept[row[0], 1] = tirx.Cast(_INDEX, kind)
                    kept[row[0], 2] = tirx.Cast(_INDEX, best[0])
                    total[0] = row[0] + tirx.const(1, _INDEX)
    with script.serial(0, tirx.const(room, _INDEX) - total[0]) as rest:
        for column in range(3):
            kept[total[0] + rest, column] = tirx.const(0, _INDEX)


def _sink(heap: Any, size: Any, start: Any, before: Any) -> None:
    """Move a heap's element down until none below comes before it."""
    at, moves, other = (variable("int32") for _ in range(3))
    at[0] = start
    moves[0] = tirx.const(1, "int32")
    with (
        script.serial(0, int(heap.shape[0]).bit_length()),
        script.If(tirx.all(moves[0] != 0, 2 * at[0] + 1 < size[0])),
        script.Then(),
    ):
        other[0] = 2 * at[0] + 1
        with (
            script.If(other[0] + 1 < size[0]),
            script.Then(),
            script.If(before(heap[other[0] + 1], heap[other[0]])),
            script.Then(),
        ):
            other[0] = other[0] + 1
        with script.If(before(heap[other[0]], heap[at[0]])):
            with script.Then():
                swapped = variable("int32")
                swapped[0] = heap[at[0]]
                heap[at[0]] = heap[other[0]]
                heap[other[0]] = swapped[0]
                at[0] = other[0]
            with script.Else():
                moves[0] = tirx.const(0, "int32")


def _corners(what: Suppression, boxes: Any, batch: Any, box: Any) -> Any:
    """Return the lowest and the highest place of a box on its two axes, and its area."""
    found = variable("float32", 5)
    first, second, third, fourth = (boxes[batch, box, place] for place in range(4))
    if what.is_centered:
        width, height = third / 2, fourth / 2
        ends = first - width, first + width, second - height, second + height
    else:
        lowest = (tirx.min(first, third), tirx.min(second, fourth))
        highest = (tirx.max(first, third), tirx.max(second, fourth))
        ends = lowest[0], highest[0], lowest[1], highest[1]
    for place, end in enumerate(ends):
        found[place] = end
    found[4] = (found[1] - found[0]) * (found[3] - found[2])
    return found


def _drop_overlapping(alive: Any, box: Any, better: Any, limit: Any) -> None:
    """Clear `alive` where the area that two boxes share is a larger part of their area than the
    limit."""
    sides = variable("float32", 2)
    for axis in range(2):
        low, high = 2 * axis, 2 * axis + 1
        sides[axis] = tirx.min(box[high], better[high]) - tirx.max(box[low], better[low])
    shared, whole = variable("float32"), variable("float32")
    shared[0] = sides[0] * sides[1]
    whole[0] = box[4] + better[4] - shared[0]
    positive = (sides[0], sides[1], box[4], better[4], whole[0])
    with (
        script.If(tirx.all(*(one > 0 for one in positive), shared[0] / whole[0] > limit)),
        script.Then(),
    ):
        alive[0] = tirx.const(0, "int32")
