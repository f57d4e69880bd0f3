"""Everything that is no product through edgekit's schedules, judged by onnxruntime."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from support.compiling import check_against_onnxruntime, one_node_model, random_array
from support.examples import a_third_of, examples, one_of
from support.onnx_models import onnx_model

SHAPES = st.one_of(
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    st.sampled_from([(1, 1000), (3, 17, 64), (1, 64, 7, 7), (2, 5, 31), (1, 3, 1, 67), (129,)]),
)
IMAGES = st.tuples(
    st.integers(1, 2),
    st.one_of(st.integers(1, 20), st.sampled_from([32, 33, 64])),
    st.integers(1, 20),
    st.integers(1, 20),
)
AXES = [axes for count in range(1, 5) for axes in combinations(range(4), count)]
FLATTENED = one_of((2, 6, 4, 5), (1, 16, 1, 1), (3, 1, 4, 5), (1, 12, 1, 7))
AFTER_CONVOLUTION = pytest.mark.parametrize("channels_last", [False, True])


def after_convolution(node_inputs: tuple[str, ...], shape: tuple[int, ...]) -> tuple[list, dict]:
    """A node before it that leaves its result channels last, and its weights."""
    del node_inputs
    weight = random_array((shape[1], shape[1], 1, 1), 3) / np.float32(shape[1] ** 0.5)
    return [helper.make_node("Conv", ["x", "first"], ["c"])], {"first": weight}


def check(
    operator: str,
    shape: tuple[int, ...],
    constants: dict[str, np.ndarray] | None = None,
    *,
    channels_last: bool = False,
    **attributes: object,
) -> None:
    """The operator alone, or where its input comes out of a convolution channels last."""
    nodes, weights, source = [], {}, "x"
    if channels_last:
        (nodes, weights), source = after_convolution(("x",), shape), "c"
    constants = constants or {}
    names = [name if array is not None else "" for name, array in constants.items()]
    nodes.append(helper.make_node(operator, [source, *names], ["y"], **attributes))
    weights |= {name: array for name, array in constants.items() if array is not None}
    if operator.startswith("Arg"):
        nodes[-1].output[0] = "place"
        nodes.append(helper.make_node("Cast", ["place"], ["y"], to=TensorProto.FLOAT))
    model = onnx_model(nodes, {"x": shape}, ["y"], weights)

    check_against_onnxruntime(model, {"x": random_array(shape)})


@settings(max_examples=examples(25))
@given(
    st.sampled_from(["MaxPool", "AveragePool"]),
    IMAGES,
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_any_pool_gives_onnxruntimes_numbers(
    operator: str,
    shape: tuple[int, ...],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, ...],
    ceil: bool,
    counts_padding: bool,
    channels_last: bool,
) -> None:
    top, left, bottom, right = pads
    assume(max(top, bottom) < kernel[0])
    assume(max(left, right) < kernel[1])
    assume(shape[2] + top + bottom >= kernel[0])
    assume(shape[3] + left + right >= kernel[1])
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": int(ceil)}
    if operator == "AveragePool":
        # Where a window hangs over the end, onnxruntime before 1.20 counted elements of its own.
        assume(not (ceil and counts_padding))
        attributes["count_include_pad"] = int(counts_padding)

    check(operator, shape, channels_last=channels_last, **attributes)


@AFTER_CONVOLUTION
@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", one_of((2, 20, 7, 7), (1, 33, 1, 5), (1, 64, 1, 1)))
def test_pools_over_a_whole_image(
    operator: str, shape: tuple[int, ...], channels_last: bool
) -> None:
    check(operator, shape, channels_last=channels_last)


@settings(max_examples=examples(20))
@given(SHAPES, st.integers(-4, 3), st.sampled_from(["Softmax", "LogSoftmax"]), st.booleans())
def test_softmax_over_any_axis(
    shape: tuple[int, ...], axis: int, operator: str, channels_last: bool
) -> None:
    assume(-len(shape) <= axis < len(shape))

    check(operator, shape, channels_last=channels_last and len(shape) == 4, axis=axis)


@settings(max_examples=examples(25))
@given(
    st.sampled_from(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd"]),
    IMAGES,
    st.sampled_from(AXES),
    st.booleans(),
    st.booleans(),
)
def test_reductions_over_any_set_of_axes(
    operator: str, shape: tuple[int, ...], axes: tuple[int, ...], keeps: bool, channels_last: bool
) -> None:
    check(operator, shape, channels_last=channels_last, axes=axes, keepdims=int(keeps))


@pytest.mark.parametrize("keeps", one_of(0, 1))
@pytest.mark.parametrize("axes", a_third_of(AXES), ids=str)
def test_sums_over_every_set_of_axes(axes: tuple[int, ...], keeps: int) -> None:
    shape = (2, 33, 5, 19)
    constants = {"axes": np.array(axes, "int64")}

    check("ReduceSum", shape, constants, keepdims=keeps)
    check("ReduceSum", shape, constants, channels_last=True, keepdims=keeps)


@settings(max_examples=examples(12))
@given(SHAPES, st.integers(1, 4))
def test_layer_norm_over_any_last_axes(shape: tuple[int, ...], count: int) -> None:
    axis = max(len(shape) - count, 0)
    normed = shape[axis:]
    assume(np.prod(normed) > 1)
    constants = {"scale": random_array(normed, 1), "bias": random_array(normed, 2)}

    check("LayerNormalization", shape, constants, axis=axis)


@AFTER_CONVOLUTION
@pytest.mark.parametrize(
    ("mode", "coordinates", "nearest"),
    [
        ("nearest", "asymmetric", "floor"),
        ("nearest", "half_pixel", "round_prefer_floor"),
        ("linear", "half_pixel", "floor"),
        ("linear", "align_corners", "floor"),
        ("cubic", "half_pixel", "floor"),
    ],
)
@pytest.mark.parametrize("scales", one_of((1.5, 0.5), (2.0, 2.0), (3.0, 1.0)))
def test_resizes(
    mode: str, coordinates: str, nearest: str, scales: tuple[float, float], channels_last: bool
) -> None:
    constants = {"roi": None, "scales": np.array([1, 1, *scales], "float32")}

    check(
        "Resize",
        (1, 10, 6, 8),
        constants,  # type: ignore[arg-type]
        channels_last=channels_last,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode=nearest,
    )


@settings(max_examples=examples(12))
@given(
    st.integers(0, 3),
    st.lists(st.integers(1, 33), min_size=2, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_concatenations_of_values_in_either_layout(
    axis: int, extents: list[int], computed: list[bool]
) -> None:
    shapes, nodes, parts, weights = {}, [], [], {}
    for number, extent in enumerate(extents):
        shape = [2, 6, 5, 7]
        shape[axis] = extent
        shapes[f"x{number}"] = tuple(shape)
        parts.append(f"x{number}")
        if computed[number]:
            weights[f"w{number}"] = random_array((shape[1], shape[1], 1, 1), number)
            parts[-1] = f"c{number}"
            nodes.append(helper.make_node("Conv", [f"x{number}", f"w{number}"], [parts[-1]]))
    nodes.append(helper.make_node("Concat", parts, ["v"], axis=axis))
    nodes.append(helper.make_node("Relu", ["v"], ["y"]))
    feeds = {name: random_array(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}

    check_against_onnxruntime(onnx_model(nodes, shapes, ["y"], weights), feeds)


@AFTER_CONVOLUTION
@settings(max_examples=examples(10))
@given(st.permutations(range(4)), IMAGES)
def test_transposes(channels_last: bool, order: list[int], shape: tuple[int, ...]) -> None:
    check("Transpose", shape, channels_last=channels_last, perm=order)


@AFTER_CONVOLUTION
@pytest.mark.parametrize("shape", [(1, 64, 16, 24), (2, 21, 8, 40), (1, 40, 9, 48)])
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_transposes_that_are_computed_tile_by_tile(
    channels_last: bool, order: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    check("Transpose", shape, channels_last=channels_last, perm=list(order))


@AFTER_CONVOLUTION
@pytest.mark.parametrize("shape", one_of((2, 6, 4, 5), (1, 16, 1, 1), (3, 1, 4, 5), (1, 12, 1, 7)))
@pytest.mark.parametrize("axis", range(5))
def test_flattening(shape: tuple[int, ...], axis: int, channels_last: bool) -> None:
    check("Flatten", shape, channels_last=channels_last, axis=axis)


@AFTER_CONVOLUTION
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_padding(mode: str, channels_last: bool) -> None:
    widths = {"widths": np.array([0, 1, 1, 2, 0, 2, 2, 1], "int64")}

    check("Pad", (2, 7, 5, 6), widths, channels_last=channels_last, mode=mode)


@settings(max_examples=examples(20))
@given(
    st.sampled_from(["Add", "Mul", "Sub", "Div", "Max", "Min", "Pow"]),
    st.lists(st.sampled_from([True, False]), min_size=4, max_size=4),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)
def test_broadcasts_of_any_rank_beside_a_value_channels_last(
    operator: str, kept: list[bool], rank: int, constant: bool, turned: bool
) -> None:
    shape = (2, 13, 5, 6)
    other = tuple(extent if keep else 1 for extent, keep in zip(shape, kept, strict=True))
    other = other[4 - rank :]
    nodes, weights = after_convolution(("x",), shape)
    nodes.append(helper.make_node("Exp", ["c"], ["e"]))
    nodes.append(helper.make_node(operator, ["z", "e"] if turned else ["e", "z"], ["y"]))
    array = np.asarray(np.abs(random_array(other, 5)) + 0.5, "float32")
    feeds = {"x": random_array(shape)}
    shapes = {"x": shape}
    if constant:
        weights["z"] = array
    else:
        shapes["z"], feeds["z"] = other, array

    check_against_onnxruntime(onnx_model(nodes, shapes, ["y"], weights), feeds, near=1e-4)


@pytest.mark.parametrize(
    "operator",
    ["Relu", "Sigmoid", "Tanh", "Exp", "Erf", "HardSwish", "Softplus", "LeakyRelu", "Abs"],
)
@pytest.mark.parametrize("shape", one_of((1, 20, 5, 7), (23,)))
def test_nan_and_infinities_pass_as_in_onnxruntime(operator: str, shape: tuple[int, ...]) -> None:
    data = random_array(shape)
    data.flat[:8] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-42]

    check_against_onnxruntime(one_node_model(operator, shape), {"x": data})


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ReduceMean"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_nan_and_infinity_are_seen_by_reductions(operator: str, axes: tuple[int, ...]) -> None:
    data = random_array((6, 70))
    data[1, 1], data[3, 20], data[4, 69] = np.nan, np.inf, -np.inf

    check_against_onnxruntime(one_node_model(operator, data.shape, axes=axes), {"x": data})


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", range(4))
def test_the_place_of_the_largest_and_smallest(operator: str, axis: int) -> None:
    check(operator, (2, 20, 5, 7), axis=axis)
    check(operator, (2, 20, 5, 7), channels_last=True, axis=axis)


def test_a_tensor_without_axes_and_one_without_elements() -> None:
    check("Exp", ())
    check("Relu", (3, 0, 4))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_sums(axis: int) -> None:
    check("CumSum", (3, 17, 5), {"axis": np.array(axis, "int64")})


def test_gathering_rows_and_sorting_out_the_highest() -> None:
    check("Gather", (40, 17), {"rows": np.array([[3, 39], [0, 3]], "int64")})
    check("Split", (6, 4), {"sizes": np.array([6], "int64")})
