"""Say which dimensions of a node's inputs contradict each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from edgekit.base.wording import counted

Shape = tuple[int, ...]
Pair = tuple[int, int, int, int]
"""An input and its axis, and another input and its axis, whose extents have to be equal."""


def contradiction(
    operator: str,
    names: Sequence[str],
    shapes: Sequence[Shape | None],
    attributes: Mapping[str, Any],
) -> str | None:
    """Return the contradiction in words, or None. Inputs that are left out have no shape."""
    known = [place for place, shape in enumerate(shapes) if shape is not None]
    for other in known[1:] if operator in _OF_ONE_RANK else ():
        some, others = shapes[known[0]] or (), shapes[other] or ()
        if len(some) != len(others):
            return (
                f"{names[known[0]]!r} {list(some)} has {counted(len(some), 'dimension')}, and "
                f"{names[other]!r} {list(others)} has {len(others)}; they need equally many"
            )
    for one, axis, other, place in PAIRS.get(operator, _always())(shapes, attributes):
        if max(one, other) >= len(shapes):
            continue
        first, second = shapes[one], shapes[other]
        if first is None or second is None:
            continue
        if not (-len(first) <= axis < len(first) and -len(second) <= place < len(second)):
            continue
        if first[axis] != second[place]:
            return (
                f"dimension {axis % len(first)} of {names[one]!r} {list(first)} is {first[axis]}, "
                f"and dimension {place % len(second)} of {names[other]!r} {list(second)} is "
                f"{second[place]}; they have to be equal"
            )
    return None


def _always(*pairs: Pair) -> Callable[..., Iterator[Pair]]:
    return lambda shapes, attributes: iter(pairs)


def _whole(attributes: Mapping[str, Any], name: str, default: int = 0) -> int:
    """Return an attribute; the default where the model gives something else than a whole number."""
    value = attributes.get(name)
    return value if isinstance(value, int) else default


def _gemm(shapes: Sequence[Shape | None], attributes: Mapping[str, Any]) -> Iterator[Pair]:
    yield 0, 0 if _whole(attributes, "transA") else 1, 1, 1 if _whole(attributes, "transB") else 0


def _convolution(shapes: Sequence[Shape | None], attributes: Mapping[str, Any]) -> Iterator[Pair]:
    if _whole(attributes, "group", 1) == 1:
        yield 0, 1, 1, 1


def _recurrent(shapes: Sequence[Shape | None], attributes: Mapping[str, Any]) -> Iterator[Pair]:
    batch = 0 if _whole(attributes, "layout") else 1
    yield 0, 2, 1, 2
    for state in range(5, min(len(shapes), 7)):
        yield 0, batch, state, batch


def _broadcast(shapes: Sequence[Shape | None], attributes: Mapping[str, Any]) -> Iterator[Pair]:
    for one, other in itertools.combinations(range(len(shapes)), 2):
        first, second = shapes[one] or (), shapes[other] or ()
        for back in range(1, min(len(first), len(second)) + 1):
            if 1 not in (first[-back], second[-back]):
                yield one, -back, other, -back


def _concat(shapes: Sequence[Shape | None], attributes: Mapping[str, Any]) -> Iterator[Pair]:
    rank = len(shapes[0] or ()) if shapes else 0
    along = _whole(attributes, "axis") % max(rank, 1)
    for other, axis in itertools.product(range(1, len(shapes)), range(rank)):
        if axis != along:
            yield 0, axis, other, axis


_OF_ONE_RANK = frozenset({"Concat"})
"""Operators whose inputs have equally many dimensions."""
_ELEMENTWISE = "Add Sub Mul Div Pow Min Max Sum Mean And Or Xor Equal Less Greater Where PRelu Mod"
PAIRS: Mapping[str, Callable[..., Iterator[Pair]]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), _broadcast),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("Conv", "ConvInteger"), _convolution),
    "BatchNormalization": _always(*((0, 1, other, 0) for other in range(1, 5))),
    "Concat": _concat,
    "ConvTranspose": _always((0, 1, 1, 0)),
    "DynamicQuantizeLSTM": _always((0, 2, 1, 1)),
    "DynamicQuantizeMatMul": _always((0, -1, 1, -2)),
    "Gemm": _gemm,
    "LayerNormalization": _always((0, -1, 1, -1)),
    "MatMul": _always((0, -1, 1, -2)),
    "MatMulInteger": _always((0, -1, 1, -2)),
    "MatMulIntegerToFloat": _always((0, -1, 1, -2)),
}
