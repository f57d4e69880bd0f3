"""Control flow in straight-line code: branches computed both ways, and loops written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relax

from edgekit.models.onnx.node import RefusedError
from edgekit.models.onnx.values import Value, as_expr, dtype_of, is_known, shape_of

LONGEST_LOOP = 20_000
"""The most nodes, over all iterations, that an unrolled loop may have."""
KNOWN_BRANCH = "branches whose condition is known were taken when importing"
BOTH_BRANCHES = "branches decided on the device are both computed, and one is selected"
UNROLLED = "loops were written out, iteration by iteration"


def check_length(iteration: int, nodes: int) -> None:
    """Refuse a loop that is too long to be written out; `nodes` are those of its body."""
    if iteration * max(1, nodes) > LONGEST_LOOP:
        raise RefusedError(f"written out, it is longer than {LONGEST_LOOP} nodes")


def selected(
    condition: Value,
    taken: Sequence[Value],
    other: Sequence[Value],
    settle: Callable[[Value], Value],
) -> list[Value]:
    """Return the results of one of two branches, by a condition that the device computes."""
    flag = settle(relax.op.reshape(as_expr(condition), ()))
    return [settle(_one(flag, *pair)) for pair in zip(taken, other, strict=True)]


def _one(flag: Value, taken: Value, other: Value) -> Value:
    for value in (taken, other):
        if value is None or isinstance(value, tuple):
            raise RefusedError("its branches, decided on the device, yield sequences or optionals")
    if shape_of(taken) != shape_of(other) or dtype_of(taken) != dtype_of(other):
        raise RefusedError(
            "its branches are decided on the device and yield different shapes: "
            f"{list(shape_of(taken))} and {list(shape_of(other))}"
        )
    return relax.op.where(flag, as_expr(taken), as_expr(other))


def known_scalar(value: Value, what: str, hint: str) -> int:
    if not is_known(value):
        raise RefusedError(f"its {what} is computed on the device", hint)
    return int(value.reshape(-1)[0])
