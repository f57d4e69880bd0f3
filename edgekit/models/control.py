"""Control flow: branches and loops that data decides, loops of a known length, and loops written
out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tvm import relax

from edgekit.compiler.loops import Body, NoLoopError, Sliced, emit_branch, emit_loop
from edgekit.models.onnx.node import RefusedError
from edgekit.models.onnx.values import Value, as_expr, constant, dtype_of, is_known, shape_of

Kind = tuple[tuple[int, ...], str]
"""A shape and a type."""

SHORT_LOOP = 4
"""The most iterations of a loop that is written out although it could be repeated: fusing across
iterations then saves more than their code costs."""
LONGEST_LOOP = 20_000
"""The most nodes, over all iterations, that an unrolled loop may have."""
KNOWN_BRANCH = "branches whose condition is known were taken when importing"
DECIDED_BRANCH = "branches whose condition is data are decided when the model runs"
DECIDED_LOOP = "loops that data ends run until it does"
UNROLLED = "loops were written out, iteration by iteration"


def check_length(iteration: int, nodes: int) -> None:
    """Refuse a loop that is too long to be written out; `nodes` are those of its body."""
    if iteration * max(1, nodes) > LONGEST_LOOP:
        raise RefusedError(f"written out, it is longer than {LONGEST_LOOP} nodes")


def is_short(count: int) -> bool:
    """Return whether a loop of so many iterations is written out although it could be repeated."""
    return count <= SHORT_LOOP


def repeated(
    builder: relax.BlockBuilder,
    count: int,
    sliced: Sequence[Sliced],
    states: Sequence[Value],
    body: Body,
    stacked: Sequence[bool],
) -> list[Value]:
    """Emit a loop, or its iterations if they are few; return the last states and the stacks."""
    if not is_short(count):
        return emit_loop(builder, count, sliced, states, body, stacked)
    state, pieces = list(states), [[] for _ in stacked]  # type: tuple[list[Value], list[list[Value]]]
    for k in range(count):
        places = [count - 1 - k if one.backwards else k for one in sliced]
        slices = [
            builder.emit(relax.op.take(one.tensor, relax.const(place, "int64"), axis=0))
            for one, place in zip(sliced, places, strict=True)
        ]
        after, made = body(slices, state)
        state = list(after)
        for values, piece, backwards in zip(pieces, made, stacked, strict=True):
            shown = builder.emit(relax.op.expand_dims(piece, 0))
            values.insert(0 if backwards else len(values), shown)
    return [*state, *(builder.emit(relax.op.concat(values, axis=0)) for values in pieces)]


def decided_branch(
    builder: relax.BlockBuilder,
    condition: Value,
    branches: Sequence[Callable[[], Sequence[Value]]],
) -> list[Value]:
    """Emit two branches, of which the one runs that a condition of the device picks."""
    shapes: list[list[Kind]] = []

    def tensors(branch: Callable[[], Sequence[Value]]) -> list[Value]:
        values = branch()
        if any(value is None or isinstance(value, tuple) for value in values):
            raise RefusedError("its branches, decided on the device, yield sequences or optionals")
        shapes.append([(shape_of(value), dtype_of(value)) for value in values])
        return [as_expr(value) for value in values]

    try:
        made = [partial(tensors, branch) for branch in branches]
        return emit_branch(builder, flag_of(builder, condition), made)
    except NoLoopError as error:
        first, second = next(pair for pair in zip(*shapes, strict=True) if pair[0] != pair[1])
        raise RefusedError(
            "its branches are decided on the device and yield different tensors: "
            f"{_words(first)} and {_words(second)}"
        ) from error


def _words(kind: Kind) -> str:
    return f"{list(kind[0])} of {kind[1]}"


def decided_loop(
    builder: relax.BlockBuilder,
    bound: int | None,
    states: Sequence[Value],
    body: Callable[[list[Value]], tuple[Sequence[Value], Sequence[Value]]],
    pieces: int = 0,
) -> list[Value]:
    """Emit a loop that runs while its first state is true, and at most `bound` times; return the
    last states, and the stacks of the pieces that `body` returns after the next states."""
    before = [as_expr(value) for value in states]

    def iteration(
        slices: list[Value], given: list[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        del slices
        after, made = body(given)
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            if new is None or isinstance(new, tuple):
                raise RefusedError("it carries sequences or optionals, and data ends it")
            if (shape_of(old), dtype_of(old)) != (shape_of(new), dtype_of(new)):
                kinds = [(shape_of(value), dtype_of(value)) for value in (old, new)]
                raise RefusedError(
                    f"data ends it, and what it carries as number {number} changes from "
                    f"{_words(kinds[0])} to {_words(kinds[1])}"
                )
        if any(value is None or isinstance(value, tuple) for value in made):
            raise RefusedError("it collects sequences or optionals")
        return [as_expr(value) for value in after], [as_expr(value) for value in made]

    if bound is None and pieces:
        raise RefusedError("what it collects grows as long as it runs, and data ends it")
    return emit_loop(builder, bound, (), before, iteration, [False] * pieces, data_ends=True)


def tried(builder: relax.BlockBuilder, body: Callable[[], list[Value]]) -> list[Value]:
    """Return the results of `body` without what it emits: those that are known count alone."""
    builder.begin_scope([])
    builder._begin_dataflow_block()
    try:
        return body()
    finally:
        builder._end_block()
        builder.end_scope()


def flag_of(builder: relax.BlockBuilder, condition: Value) -> Value:
    """Return a condition as a boolean scalar that is bound to a variable."""
    flag = relax.op.reshape(as_expr(condition), ())
    if dtype_of(condition) != "bool":
        flag = relax.op.not_equal(builder.emit(flag), constant(0, dtype_of(condition)))
    return builder.emit(flag)


def known_scalar(value: Value, what: str, hint: str) -> int:
    if not is_known(value):
        raise RefusedError(f"its {what} is computed on the device", hint)
    return int(value.reshape(-1)[0])
