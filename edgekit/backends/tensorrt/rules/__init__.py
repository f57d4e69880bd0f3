"""The rules for TensorRT; if two rules match, the first wins.

TensorRT fuses by itself, so a rule takes one operator, except where several of TVM's are one of
ONNX's.
"""

from __future__ import annotations

from dataclasses import replace

from edgekit.backends.base import Rule
from edgekit.backends.tensorrt.rules import (
    attention,
    choosing,
    convolution,
    elementwise,
    movement,
    pooling,
    quantised,
)


def all_rules(*, int8: bool) -> tuple[Rule, ...]:
    """Return the rules. With `int8` they include quantised models: TensorRT computes in integers
    between a dequantisation and a quantisation, with its own rounding."""
    floats = (
        *convolution.rules(),
        *elementwise.rules(),
        *pooling.rules(),
        *movement.rules(),
        *choosing.rules(),
        *attention.rules(),
    )
    if not int8:
        return floats
    return tuple(replace(rule, within_quantised=True) for rule in (*quantised.rules(), *floats))
