"""The operators that TensorRT takes; of two rules that fit, the first wins.

TensorRT fuses by itself: rules take one operator each, except where a few of TVM's are one of
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
    """With `int8` quantised models too: TensorRT computes in integers what stands between a
    dequantisation and a quantisation, and rounds in its own way."""
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
