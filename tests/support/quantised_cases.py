"""Quantised convolutions and dense layers drawn at random, as small TFLite models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from hypothesis import strategies as st

from support.tflite_models import Op, T, constant, tflite_bytes

Draw = Callable[[st.SearchStrategy[Any]], Any]
ACTIVATIONS = ("NONE", "RELU", "RELU6")


@dataclass(frozen=True, repr=False)
class Quantised:
    content: bytes
    shape: tuple[int, ...]
    seed: int
    told: str

    def __repr__(self) -> str:
        return self.told

    def values(self) -> np.ndarray:
        return np.random.default_rng(self.seed).integers(-128, 128, self.shape).astype("int8")


@st.composite
def layers(draw: Draw) -> Quantised:
    kind = draw(st.sampled_from(("CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")))
    seed = draw(st.integers(0, 2**16))
    random = np.random.default_rng(seed)
    channels = draw(st.sampled_from((1, 3, 4, 8, 15, 16, 32)))
    outputs = draw(st.sampled_from((1, 3, 8, 16, 24)))
    activation = draw(st.sampled_from(ACTIVATIONS))
    zeros = [draw(st.sampled_from((-128, -5, 0, 17, 127))) for _ in range(2)]
    options: dict[str, Any] = {
        "fusedActivationFunction": getattr(schema.ActivationFunctionType, activation)
    }
    shape: tuple[int, ...] = (1, channels)
    if kind == "FULLY_CONNECTED":
        weight = (outputs, channels)
        axis, depth, options["table"] = 0, channels, "FullyConnectedOptions"
    else:
        kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        shape = (1, *(draw(st.integers(side, side + 9)) for side in kernel), channels)
        options |= {
            "padding": draw(st.sampled_from((schema.Padding.SAME, schema.Padding.VALID))),
            "strideH": draw(st.integers(1, 2)),
            "strideW": draw(st.integers(1, 2)),
        }
        if kind == "CONV_2D":
            weight = (outputs, *kernel, channels)
            axis, depth, options["table"] = 0, channels * kernel[0] * kernel[1], "Conv2DOptions"
        else:
            outputs = channels
            weight = (1, *kernel, channels)
            axis, depth, options["table"] = 3, kernel[0] * kernel[1], "DepthwiseConv2DOptions"
            options["depthMultiplier"] = 1
    per_channel = kind != "FULLY_CONNECTED" and draw(st.booleans())
    scales = random.uniform(0.002, 0.02, outputs if per_channel else 1).astype("float32")
    source = float(np.float32(random.uniform(0.01, 0.1)))
    # Wide enough for most sums, so that few results are cut off.
    result = float(np.float32(source * scales.mean() * 60 * depth**0.5))
    tensors = [
        T("x", shape, "int8", scale=source, zero=zeros[0]),
        constant("w", _steps(random, weight), scale=scales, axis=axis),
        constant(
            "b",
            random.integers(-900, 900, outputs).astype("int32"),
            scale=(scales * np.float32(source)).astype("float32"),
        ),
        T("y", (), "int8", scale=result, zero=zeros[1]),
    ]
    content = tflite_bytes(tensors, [Op(kind, ("x", "w", "b"), ("y",), options)], ["x"], ["y"])
    told = f"{kind} {shape} {weight} {activation} {options} zeros {zeros} seed {seed}"
    return Quantised(content, shape, seed, told)


def _steps(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.integers(-127, 128, shape).astype("int8")
