"""The scale and zero point of each tensor of a run of steps, as its operators imply them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgekit.aot.operators import (
    Add,
    AveragePool,
    Concatenate,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool,
    Mean,
    Multiply,
    Operator,
    Pad,
    ResizeNearest,
)
from edgekit.aot.program import Step


@dataclass(frozen=True)
class Quantisation:
    scale: float
    zero_point: int


ANY = Quantisation(1.0, 0)
"""The quantisation of a tensor whose numbers no operator interprets."""
_KEEPING = AveragePool, Concatenate, MaxPool, Pad, ResizeNearest
"""Operators whose results have the quantisation of their inputs."""


class Disagreement(Exception):
    """Two operators mean different numbers by the same stored values."""


def quantisations(steps: Sequence[Step]) -> dict[int, Quantisation]:
    """Return the quantisation of each buffer that the steps read or write."""
    owner: dict[int, int] = {}
    found: dict[int, Quantisation] = {}

    def root(buffer: int) -> int:
        while owner.setdefault(buffer, buffer) != buffer:
            buffer = owner[buffer]
        return buffer

    def settle(buffer: int, quantisation: Quantisation) -> None:
        if found.setdefault(root(buffer), quantisation) != quantisation:
            raise Disagreement

    def join(buffer: int, other: int) -> None:
        left, right = root(buffer), root(other)
        if left == right:
            return
        moved = found.pop(left, None)
        owner[left] = right
        if moved is not None:
            settle(right, moved)

    for step in steps:
        if isinstance(step.operator, _KEEPING):
            for buffer in step.inputs:
                join(buffer, step.outputs[0])
        for buffer, quantisation in _implied(step):
            settle(buffer, quantisation)
    for step in steps:  # Stored values in which no operator sees numbers may stand for any.
        wanted = _suitable(step.operator)
        if wanted is not None:
            found.setdefault(root(step.outputs[0]), wanted)
    return {
        buffer: found.get(root(buffer), ANY)
        for step in steps
        for buffer in (*step.inputs, *step.outputs)
    }


def operand_quantisations(operator: Operator) -> tuple[Quantisation, ...]:
    """Return the quantisation of each operand that the operator interprets, constants included."""
    match operator:
        case Conv2D() | DepthwiseConv2D() | FullyConnected() | Mean():
            assert operator.scales is not None
            return (Quantisation(operator.scales.inputs[0], operator.zero_point),)
        case Add() | Multiply():
            assert operator.scales is not None
            zeros = (operator.left.zero_point, operator.right.zero_point)
            pairs = zip(operator.scales.inputs, zeros, strict=True)
            return tuple(Quantisation(scale, zero) for scale, zero in pairs)
    return ()


def _suitable(operator: Operator) -> Quantisation | None:
    """Return a quantisation in which TFLite can say what an operator does to stored values."""
    match operator:
        case Pad():
            return Quantisation(1.0, operator.value)
        case AveragePool() | MaxPool() if operator.high == 127:
            return Quantisation(1.0, operator.low)  # ReLU
        case AveragePool() | MaxPool() if operator.low < operator.high:
            return Quantisation(6.0 / (operator.high - operator.low), operator.low)  # ReLU6
    return None


def _implied(step: Step) -> Iterator[tuple[int, Quantisation]]:
    operator = step.operator
    operands = operand_quantisations(operator)
    if not operands:
        return
    if isinstance(operator, Add | Multiply):
        sides = zip((operator.left, operator.right), operands, strict=True)
        operands = tuple(q for side, q in sides if side.constant is None)
    yield from zip(step.inputs, operands, strict=True)
    scales, rescale = getattr(operator, "scales"), getattr(operator, "rescale")  # noqa: B009
    yield step.outputs[0], Quantisation(scales.result, rescale.zero_point)
