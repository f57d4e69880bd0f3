"""One-layer int8 models, and inputs for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.profiles.cpu import Target
from support.tflite_models import Op, T, constant, tflite_bytes

INPUT_SCALE = 0.037


@dataclass(frozen=True)
class Case:
    kind: str
    """conv, depthwise or dense."""
    channels: int
    outputs: int
    """The outputs of a depthwise convolution: a multiple of its channels."""
    size: tuple[int, int] = (6, 7)
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    batch: int = 1
    same: bool = True
    zero: int = -11
    activation: int = 0
    """0 none, 1 ReLU, 3 ReLU6."""
    extreme: bool = False
    """All numbers as large as can be: what saturates on the way shows."""
    target: Target | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        if self.kind == "dense":
            return (self.batch, self.channels)
        return (self.batch, *self.size, self.channels)


def numbers(random: np.random.Generator, shape: tuple[int, ...], extreme: bool) -> np.ndarray:
    if extreme:
        return random.choice(np.array([-127, -127, 127], "int8"), shape)
    return random.integers(-127, 128, shape).astype("int8")


def layer(case: Case) -> bytes:
    random = np.random.default_rng(7)
    taps = case.channels if case.kind == "dense" else np.prod(case.kernel)
    depth = taps * (case.channels if case.kind == "conv" else 1)
    shape = {
        "conv": (case.outputs, *case.kernel, case.channels),
        "depthwise": (1, *case.kernel, case.outputs),
        "dense": (case.outputs, case.channels),
    }[case.kind]
    scales: Any = random.uniform(0.3, 1.0, case.outputs) * 0.05
    if case.kind == "dense":
        scales = 0.05
    weight = constant(
        "w",
        numbers(random, shape, case.extreme),
        scale=tuple(scales) if case.kind != "dense" else scales,
        axis=3 if case.kind == "depthwise" else 0,
    )
    bias = constant(
        "b",
        random.integers(-3000, 3000, case.outputs).astype("int32"),
        scale=tuple(scales * INPUT_SCALE) if case.kind != "dense" else scales * INPUT_SCALE,
    )
    options = {
        "padding": 0 if case.same else 1,
        "strideH": case.strides[0],
        "strideW": case.strides[1],
        "dilationHFactor": case.dilations[0],
        "dilationWFactor": case.dilations[1],
        "fusedActivationFunction": case.activation,
    }
    name, table = {
        "conv": ("CONV_2D", "Conv2DOptions"),
        "depthwise": ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"),
        "dense": ("FULLY_CONNECTED", "FullyConnectedOptions"),
    }[case.kind]
    if case.kind == "depthwise":
        options["depthMultiplier"] = case.outputs // case.channels
    if case.kind == "dense":
        options = {"fusedActivationFunction": case.activation}
    return tflite_bytes(
        [
            T("x", case.input_shape, "int8", scale=INPUT_SCALE, zero=case.zero),
            weight,
            bias,
            T("r", (), "int8", scale=0.03 * float(depth) ** 0.5, zero=5),
        ],
        [Op(name, ("x", "w", "b"), ("r",), {"table": table, **options})],
        ["x"],
        ["r"],
    )


LAYERS = (
    Case("conv", 64, 48, kernel=(3, 3)),
    Case("conv", 64, 48, kernel=(3, 3), extreme=True, zero=-128),
    Case("conv", 3, 24, (33, 31), (3, 3), strides=(2, 2), zero=127),
    Case("conv", 1, 64, (49, 10), (10, 4), strides=(2, 2), extreme=True),
    Case("conv", 6, 10, (9, 8), (3, 2), dilations=(2, 2)),
    Case("conv", 130, 7, (1, 9)),
    Case("depthwise", 64, 64, (25, 5), (3, 3), extreme=True),
    Case("depthwise", 6, 12, (9, 9), (3, 3), strides=(2, 2)),
    Case("dense", 640, 130, batch=1, extreme=True),
    Case("dense", 61, 33, batch=5),
)
