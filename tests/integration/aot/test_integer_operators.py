"""Portable C of single operators, compiled here, gives the numbers of LiteRT's reference kernels.

Every model has random shapes, scales, zero points and windows, and the whole range of int8 in its
input. The kernels run between guards, and in place where they say they may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.integer_kernels import recognised_file, run_module
from support.tflite_models import Op, T, constant, tflite_bytes, write_model

from edgekit.aot import operators
from edgekit.models.oracle import oracle_for

EXAMPLES = settings(
    max_examples=examples(10),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # Shrinking compiles hundreds.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
ACTIVATIONS = st.sampled_from([0, 1, 2, 3])
"""None, ReLU, ReLU between -1 and 1, ReLU6."""
ZEROS = st.integers(-128, 127)
SMALL = st.integers(1, 7)
SEEDS = st.integers(0, 2**32 - 1)


def scales(low: float = 0.002, high: float = 0.2) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda value: float(np.float32(value)))


def fill(shape: Sequence[int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, tuple(shape)).astype("int8")


def check(
    folder: Path,
    tensors: Sequence[T],
    operator: Op,
    inputs: Sequence[str],
    wanted: type | tuple[type, ...],
    *,
    steps: int = 0,
    feeds: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
) -> None:
    """The operator alone in a model: ours against LiteRT's, and ours in integers."""
    content = tflite_bytes(tensors, [operator], inputs, operator.outputs)
    source = write_model(folder, content)
    recognised = recognised_file(source.path)
    assert not recognised.declined
    kinds = [type(entry) for entry in recognised.operators.values()]
    changes = any(tensor.scale != tensors[0].scale for tensor in tensors)
    assert any(issubclass(kind, wanted) for kind in kinds) or not changes, kinds
    by_name = {tensor.name: tensor for tensor in tensors}
    if feeds is None:
        feeds = {name: fill(by_name[name].shape, seed + k) for k, name in enumerate(inputs)}
    (found,), _ = run_module(recognised, [feeds[name] for name in inputs], folder)
    (expected,) = oracle_for(source).run(feeds).values()
    difference = np.abs(found.astype("float64") - expected.astype("float64"))
    assert difference.max(initial=0) <= steps, (
        f"{(difference > steps).sum()} of {difference.size} differ, by up to {difference.max()}"
    )


@st.composite
def windows(draw: Any, channels: int = 5) -> dict[str, Any]:
    """An image and a window that fits into it."""
    height, width = draw(st.integers(1, 10)), draw(st.integers(1, 10))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    kernel = [
        draw(st.integers(1, max(1, min(4, (extent - 1) // step + 1))))
        for extent, step in zip((height, width), dilation, strict=True)
    ]
    return {
        "image": (1, height, width, draw(st.integers(1, channels))),
        "kernel": tuple(kernel),
        "options": {
            "padding": draw(st.integers(0, 1)),
            "strideH": draw(st.integers(1, 3)),
            "strideW": draw(st.integers(1, 3)),
        },
        "dilation": {"dilationHFactor": dilation[0], "dilationWFactor": dilation[1]},
    }


@st.composite
def layer_numbers(draw: Any, channels: int, depth: int) -> dict[str, Any]:
    """Weights' scales and an output scale that uses the range of int8, more or less."""
    per_channel = draw(st.booleans())
    count = channels if per_channel else 1
    weights = [draw(scales(0.001, 0.05)) for _ in range(count)]
    given_scale = draw(scales())
    if draw(st.integers(0, 3)) == 0:  # Powers of two, so that sums lie half way between steps.
        weights, given_scale = [2.0 ** draw(st.integers(-9, -4)) for _ in weights], 0.125
        output = 2.0 ** draw(st.integers(-6, 2))
    else:
        spread = given_scale * max(weights) * 70 * 70 * depth**0.5 / 128
        output = float(np.float32(spread * draw(st.floats(0.02, 4))))
    return {
        "weights": tuple(weights) if per_channel else weights[0],
        "input": given_scale,
        "zero": draw(ZEROS),
        "output": output,
        "output_zero": draw(ZEROS),
        "activation": draw(ACTIVATIONS),
        "seed": draw(SEEDS),
        "bias": draw(st.booleans()),
        "wide": draw(st.booleans()),
    }


def layer_tensors(
    numbers: Mapping[str, Any],
    image: tuple[int, ...],
    weights: tuple[int, ...],
    channels: int,
    axis: int,
) -> list[T]:
    random = np.random.default_rng(numbers["seed"])
    kernel = random.integers(-127, 128, weights).astype("int8")
    scales_of = np.atleast_1d(numbers["weights"]).astype("float32")
    steps = scales_of * np.float32(numbers["input"])
    bias = random.integers(-5000, 5000, channels).astype("int32")
    if numbers["wide"]:
        bias *= 40
    tensors = [
        T("x", image, "int8", scale=numbers["input"], zero=numbers["zero"]),
        constant("w", kernel, scale=numbers["weights"], axis=axis),
        T("r", (), "int8", scale=numbers["output"], zero=numbers["output_zero"]),
    ]
    if numbers["bias"]:
        tensors.append(constant("b", bias, scale=tuple(float(step) for step in steps)))
    return tensors


def layer_inputs(numbers: Mapping[str, Any]) -> tuple[str, ...]:
    return ("x", "w", "b") if numbers["bias"] else ("x", "w")


@EXAMPLES
@given(st.data())
def test_convolutions(tmp_path: Path, data: st.DataObject) -> None:
    window = data.draw(windows())
    channels = data.draw(st.integers(1, 6))
    depth = int(np.prod(window["kernel"])) * window["image"][3]
    numbers = {**data.draw(layer_numbers(channels, depth)), "bias": True}  # LiteRT asks for one.
    weights = (channels, *window["kernel"], window["image"][3])
    tensors = layer_tensors(numbers, window["image"], weights, channels, 0)
    options = {
        "table": "Conv2DOptions",
        "fusedActivationFunction": numbers["activation"],
        **window["options"],
        **window["dilation"],
    }
    operator = Op("CONV_2D", layer_inputs(numbers), ("r",), options)
    check(tmp_path, tensors, operator, ["x"], operators.Conv2D, seed=numbers["seed"])


@EXAMPLES
@given(st.data())
def test_depthwise_convolutions(tmp_path: Path, data: st.DataObject) -> None:
    window = data.draw(windows())
    multiplier = data.draw(st.sampled_from([1, 1, 2, 3]))
    channels = window["image"][3] * multiplier
    numbers = data.draw(layer_numbers(channels, int(np.prod(window["kernel"]))))
    weights = (1, *window["kernel"], channels)
    tensors = layer_tensors(numbers, window["image"], weights, channels, 3)
    options = {
        "table": "DepthwiseConv2DOptions",
        "depthMultiplier": multiplier,
        "fusedActivationFunction": numbers["activation"],
        **window["options"],
        **window["dilation"],
    }
    operator = Op("DEPTHWISE_CONV_2D", layer_inputs(numbers), ("r",), options)
    # With one input channel, both kinds of convolution are the same.
    kinds = (operators.DepthwiseConv2D, operators.Conv2D)
    check(tmp_path, tensors, operator, ["x"], kinds, seed=numbers["seed"])


@EXAMPLES
@given(st.data())
def test_fully_connected_layers(tmp_path: Path, data: st.DataObject) -> None:
    rows, depth, units = (data.draw(st.integers(1, high)) for high in (3, 70, 9))
    numbers = data.draw(layer_numbers(units, depth))
    tensors = layer_tensors(numbers, (rows, depth), (units, depth), units, 0)
    options = {
        "table": "FullyConnectedOptions",
        "fusedActivationFunction": numbers["activation"],
    }
    operator = Op("FULLY_CONNECTED", layer_inputs(numbers), ("r",), options)
    check(tmp_path, tensors, operator, ["x"], operators.FullyConnected, seed=numbers["seed"])


@st.composite
def pairs(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast."""
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(SMALL) for _ in range(rank))
    sides = [
        tuple(1 if draw(st.booleans()) and draw(st.booleans()) else e for e in shape)
        for _ in range(2)
    ]
    return sides[0], sides[1]


@EXAMPLES
@given(
    name=st.sampled_from(["ADD", "SUB", "MUL"]),
    shapes=pairs(),
    scale=st.tuples(scales(), scales(), scales(0.005, 0.4)),
    zero=st.tuples(ZEROS, ZEROS, ZEROS),
    activation=ACTIVATIONS,
    is_constant=st.booleans(),
    seed=SEEDS,
)
def test_sums_differences_and_products(
    tmp_path: Path,
    name: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    scale: tuple[float, ...],
    zero: tuple[int, ...],
    activation: int,
    is_constant: bool,
    seed: int,
) -> None:
    left = T("x", shapes[0], "int8", scale=scale[0], zero=zero[0])
    right = T("y", shapes[1], "int8", scale=scale[1], zero=zero[1])
    if is_constant:
        right = constant("y", fill(shapes[1], seed + 9), scale=scale[1], zero=zero[1])
    tensors = [left, right, T("r", (), "int8", scale=scale[2], zero=zero[2])]
    options = {
        "table": f"{name.capitalize()}Options",
        "fusedActivationFunction": activation,
    }
    operator = Op(name, ("x", "y"), ("r",), options)
    wanted = operators.Multiply if name == "MUL" else operators.Add
    check(tmp_path, tensors, operator, ["x"] if is_constant else ["x", "y"], wanted, seed=seed)


@EXAMPLES
@given(
    name=st.sampled_from(["AVERAGE_POOL_2D", "MAX_POOL_2D"]),
    window=windows(),
    scale=scales(),
    zero=ZEROS,
    activation=ACTIVATIONS,
    seed=SEEDS,
)
def test_pooling(
    tmp_path: Path,
    name: str,
    window: dict[str, Any],
    scale: float,
    zero: int,
    activation: int,
    seed: int,
) -> None:
    tensors = [
        T("x", window["image"], "int8", scale=scale, zero=zero),
        T("r", (), "int8", scale=scale, zero=zero),
    ]
    options = {
        "table": "Pool2DOptions",
        "filterHeight": window["kernel"][0],
        "filterWidth": window["kernel"][1],
        "fusedActivationFunction": activation,
        **window["options"],
    }
    wanted = operators.MaxPool if name == "MAX_POOL_2D" else operators.AveragePool
    check(tmp_path, tensors, Op(name, ("x",), ("r",), options), ["x"], wanted, seed=seed)


@EXAMPLES
@given(
    image=st.tuples(st.just(1), st.integers(1, 12), st.integers(1, 12), SMALL),
    scale=st.tuples(scales(), scales()),
    zero=st.tuples(ZEROS, ZEROS),
    keeps=st.booleans(),
    same=st.booleans(),
    seed=SEEDS,
)
def test_means_of_images(
    tmp_path: Path,
    image: tuple[int, ...],
    scale: tuple[float, float],
    zero: tuple[int, int],
    keeps: bool,
    same: bool,
    seed: int,
) -> None:
    last = 0 if same else 1
    tensors = [
        T("x", image, "int8", scale=scale[0], zero=zero[0]),
        constant("a", np.array([1, 2], "int32")),
        T("r", (), "int8", scale=scale[last], zero=zero[last]),
    ]
    operator = Op("MEAN", ("x", "a"), ("r",), {"table": "ReducerOptions", "keepDims": keeps})
    check(tmp_path, tensors, operator, ["x"], operators.Mean, seed=seed)


@EXAMPLES
@given(
    rows=SMALL,
    columns=st.integers(1, 40),
    scale=scales(0.001, 0.5),
    zero=ZEROS,
    beta=st.sampled_from([1.0, 0.5, 2.0]),
    seed=SEEDS,
)
def test_softmax_is_at_most_one_step_away(
    tmp_path: Path, rows: int, columns: int, scale: float, zero: int, beta: float, seed: int
) -> None:
    """LiteRT itself computes it by a table of floats, all other kernels for int8 do as we do."""
    tensors = [
        T("x", (rows, columns), "int8", scale=scale, zero=zero),
        T("r", (), "int8", scale=1 / 256, zero=-128),
    ]
    operator = Op("SOFTMAX", ("x",), ("r",), {"table": "SoftmaxOptions", "beta": beta})
    check(tmp_path, tensors, operator, ["x"], operators.Softmax, steps=1, seed=seed)


FUNCTIONS: dict[str, dict[str, Any]] = {
    "ABS": {},
    "HARD_SWISH": {},
    "LEAKY_RELU": {"table": "LeakyReluOptions", "alpha": 0.17},
    "LOGISTIC": {},
    "QUANTIZE": {},
    "RELU": {},
    "RELU6": {},
    "RELU_N1_TO_1": {},
    "TANH": {},
}


@pytest.mark.parametrize("name", FUNCTIONS)
@EXAMPLES
@given(scale=st.tuples(scales(), scales()), zero=st.tuples(ZEROS, ZEROS))
def test_functions_of_every_stored_value(
    tmp_path: Path, name: str, scale: tuple[float, float], zero: tuple[int, int]
) -> None:
    result = T("r", (), "int8", scale=scale[1], zero=zero[1])
    if name == "LOGISTIC":
        result = T("r", (), "int8", scale=1 / 256, zero=-128)
    if name == "HARD_SWISH":  # LiteRT refuses others: what comes in is at most what comes out.
        result = T("r", (), "int8", scale=max(scale), zero=zero[1])
        scale = (min(scale), max(scale))
    tensors = [T("x", (256,), "int8", scale=scale[0], zero=zero[0]), result]
    operator = Op(name, ("x",), ("r",), FUNCTIONS[name])
    feeds = {"x": np.arange(-128, 128).astype("int8")}
    check(tmp_path, tensors, operator, ["x"], operators.Lookup, feeds=feeds)


@EXAMPLES
@given(
    shape=st.lists(SMALL, min_size=1, max_size=4),
    data=st.data(),
    scale=scales(),
    zero=ZEROS,
    seed=SEEDS,
)
def test_padding(
    tmp_path: Path, shape: list[int], data: st.DataObject, scale: float, zero: int, seed: int
) -> None:
    widths = [[data.draw(st.integers(0, 3)) for _ in range(2)] for _ in shape]
    tensors = [
        T("x", tuple(shape), "int8", scale=scale, zero=zero),
        constant("p", np.array(widths, "int32")),
        T("r", (), "int8", scale=scale, zero=zero),
    ]
    operator = Op("PAD", ("x", "p"), ("r",), {"table": "PadOptions"})
    check(tmp_path, tensors, operator, ["x"], operators.Pad, seed=seed)


@EXAMPLES
@given(
    shape=st.lists(SMALL, min_size=2, max_size=4),
    extents=st.lists(SMALL, min_size=2, max_size=4),
    data=st.data(),
    scale=scales(),
    zero=ZEROS,
    seed=SEEDS,
)
def test_concatenation(
    tmp_path: Path,
    shape: list[int],
    extents: list[int],
    data: st.DataObject,
    scale: float,
    zero: int,
    seed: int,
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    names = [f"x{place}" for place in range(len(extents))]
    tensors = [
        T(name, (*shape[:axis], extent, *shape[axis + 1 :]), "int8", scale=scale, zero=zero)
        for name, extent in zip(names, extents, strict=True)
    ]
    tensors.append(T("r", (), "int8", scale=scale, zero=zero))
    options = {"table": "ConcatenationOptions", "axis": axis}
    operator = Op("CONCATENATION", tuple(names), ("r",), options)
    check(tmp_path, tensors, operator, names, operators.Concatenate, seed=seed)


@EXAMPLES
@given(
    image=st.tuples(st.just(1), SMALL, SMALL, SMALL),
    size=st.tuples(st.integers(1, 15), st.integers(1, 15)),
    mode=st.sampled_from([{}, {"alignCorners": True}, {"halfPixelCenters": True}]),
    scale=scales(),
    zero=ZEROS,
    seed=SEEDS,
)
def test_resizing_to_the_nearest(
    tmp_path: Path,
    image: tuple[int, ...],
    size: tuple[int, int],
    mode: dict[str, bool],
    scale: float,
    zero: int,
    seed: int,
) -> None:
    tensors = [
        T("x", image, "int8", scale=scale, zero=zero),
        constant("s", np.array(size, "int32")),
        T("r", (), "int8", scale=scale, zero=zero),
    ]
    options = {"table": "ResizeNearestNeighborOptions", **mode}
    operator = Op("RESIZE_NEAREST_NEIGHBOR", ("x", "s"), ("r",), options)
    check(tmp_path, tensors, operator, ["x"], operators.ResizeNearest, seed=seed)


@EXAMPLES
@given(scale=scales(0.001, 3.0), zero=ZEROS, seed=SEEDS)
def test_floats_to_stored_values(tmp_path: Path, scale: float, zero: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = np.concatenate(
        [
            (np.arange(-300, 300) + 0.5) * scale,  # Ties, as far as floats have them.
            random.normal(0, 100 * scale, 400),
            [0.0, -0.0, 1e30, -1e30, 3e38, -3e38, 1e-40],
        ]
    ).astype("float32")
    tensors = [
        T("x", values.shape),
        T("r", (), "int8", scale=scale, zero=zero),
    ]
    operator = Op("QUANTIZE", ("x",), ("r",))
    # LiteRT converts to 32-bit integers before it cuts off: it wraps around far outside.
    feeds = {"x": np.clip(values, -1e6 * scale, 1e6 * scale)}
    check(tmp_path, tensors, operator, ["x"], operators.Quantize, feeds=feeds)


@EXAMPLES
@given(scale=scales(1e-6, 300.0), zero=ZEROS)
def test_stored_values_to_floats(tmp_path: Path, scale: float, zero: int) -> None:
    tensors = [T("x", (256,), "int8", scale=scale, zero=zero), T("r", (256,))]
    operator = Op("DEQUANTIZE", ("x",), ("r",))
    feeds = {"x": np.arange(-128, 128).astype("int8")}
    check(tmp_path, tensors, operator, ["x"], operators.Dequantize, feeds=feeds)


@EXAMPLES
@given(scale=st.tuples(scales(), scales()), zero=st.tuples(st.integers(0, 255), ZEROS))
def test_images_that_come_in_as_uint8(
    tmp_path: Path, scale: tuple[float, float], zero: tuple[int, int]
) -> None:
    tensors = [
        T("x", (256,), "uint8", scale=scale[0], zero=zero[0]),
        T("r", (), "int8", scale=scale[1], zero=zero[1]),
    ]
    feeds = {"x": np.arange(256).astype("uint8")}
    check(tmp_path, tensors, Op("QUANTIZE", ("x",), ("r",)), ["x"], operators.Lookup, feeds=feeds)
