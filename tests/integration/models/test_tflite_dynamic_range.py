"""Files with int8 or float16 weights and float inputs give LiteRT's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tflite_models import Op, T, constant, run_both, tflite_bytes, write_model

RANDOM = np.random.default_rng(5)
SCALES = (0.011, 0.02, 0.0071, 0.031, 0.013)


def near(found: np.ndarray, expected: np.ndarray, shared: float = 1e-5) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= shared * np.abs(expected).max()


def compare(tensors: list[T], operator: Op, feed: np.ndarray, folder: Path) -> None:
    content = tflite_bytes([*tensors, T("r", ())], [operator], ["x"], ["r"])
    found, expected = run_both(write_model(folder, content), {"x": feed})
    near(found["r"], expected["r"])


def numbers(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * RANDOM.uniform(0.3, 3) + 0.4).astype("float32")


def stored(*shape: int) -> np.ndarray:
    return RANDOM.integers(-127, 128, shape).astype("int8")


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("scale", [0.012, (*SCALES, 0.03, 0.001)])
def test_a_dense_layer_rounds_each_row(
    scale: Any, asymmetric: bool, rows: int, tmp_path: Path
) -> None:
    feed = numbers(rows, 40)
    tensors = [
        T("x", feed.shape),
        constant("w", stored(7, 40), scale=scale),
        constant("b", numbers(7)),
    ]
    options = {"table": "FullyConnectedOptions", "asymmetricQuantizeInputs": asymmetric}
    compare(tensors, Op("FULLY_CONNECTED", ("x", "w", "b"), ("r",), options), feed, tmp_path)


def test_a_dense_layer_of_zeros_gives_its_bias(tmp_path: Path) -> None:
    tensors = [T("x", (1, 8)), constant("w", stored(3, 8), scale=0.1), constant("b", numbers(3))]
    options = {"table": "FullyConnectedOptions", "asymmetricQuantizeInputs": True}
    operator = Op("FULLY_CONNECTED", ("x", "w", "b"), ("r",), options)
    compare(tensors, operator, np.zeros((1, 8), "float32"), tmp_path)


@pytest.mark.parametrize("scale", [0.02, SCALES])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_convolution_rounds_each_image(
    scale: Any, padding: int, batch: int, tmp_path: Path
) -> None:
    feed = numbers(batch, 6, 7, 4)
    tensors = [
        T("x", feed.shape),
        constant("w", stored(5, 3, 3, 4), scale=scale),
        constant("b", numbers(5)),
    ]
    fields: dict[str, Any] = {"padding": padding, "strideH": 1, "strideW": 2}
    operator = Op("CONV_2D", ("x", "w", "b"), ("r",), {"table": "Conv2DOptions", **fields})
    compare(tensors, operator, feed, tmp_path)


def test_a_depthwise_convolution_rounds_each_image(tmp_path: Path) -> None:
    feed = numbers(1, 6, 7, 5)
    tensors = [
        T("x", feed.shape),
        constant("w", stored(1, 3, 3, 5), scale=SCALES, axis=3),
        constant("b", numbers(5)),
    ]
    fields = {"padding": 0, "strideH": 1, "strideW": 1, "depthMultiplier": 1}
    options = {"table": "DepthwiseConv2DOptions", **fields}
    compare(tensors, Op("DEPTHWISE_CONV_2D", ("x", "w", "b"), ("r",), options), feed, tmp_path)


def test_weights_of_two_readers_stay_what_they_are(tmp_path: Path) -> None:
    feed = numbers(2, 8)
    tensors = [T("x", feed.shape), constant("w", stored(8, 8), scale=0.03), T("h", ()), T("r", ())]
    options = {"table": "FullyConnectedOptions"}
    operators = [
        Op("FULLY_CONNECTED", ("x", "w"), ("h",), options),
        Op("FULLY_CONNECTED", ("h", "w"), ("r",), options),
    ]
    content = tflite_bytes(tensors, operators, ["x"], ["r"])
    found, expected = run_both(write_model(tmp_path, content), {"x": feed})
    # A sum that is off by its last bit may round to the next of 127 steps.
    near(found["r"], expected["r"], 0.01)


@pytest.mark.parametrize("operator", ["CONV_2D", "FULLY_CONNECTED"])
def test_weights_in_float16_are_widened(operator: str, tmp_path: Path) -> None:
    dense = operator == "FULLY_CONNECTED"
    feed = numbers(2, 12) if dense else numbers(1, 6, 6, 4)
    shape = (5, 12) if dense else (5, 3, 3, 4)
    options: dict[str, Any] = {"table": "FullyConnectedOptions"}
    if not dense:
        options = {"table": "Conv2DOptions", "padding": 0, "strideH": 1, "strideW": 1}
    tensors = [
        T("x", feed.shape),
        constant("half", numbers(*shape).astype("float16")),
        constant("b", numbers(5)),
        T("w", shape),
        T("r", ()),
    ]
    operators = [
        Op("DEQUANTIZE", ("half",), ("w",), {"table": "DequantizeOptions"}),
        Op(operator, ("x", "w", "b"), ("r",), options),
    ]
    content = tflite_bytes(tensors, operators, ["x"], ["r"])
    found, expected = run_both(write_model(tmp_path, content), {"x": feed})
    near(found["r"], expected["r"])
