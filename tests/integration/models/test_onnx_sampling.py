"""Where resized pixels come from, against ONNX's reference implementation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from support.examples import examples

from edgekit.models.onnx.operators.sampling import Method, taps

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric")


def reference(method: Method, values: np.ndarray, output: int) -> np.ndarray:
    node = helper.make_node(
        "Resize",
        ["x", "", "", "sizes"],
        ["y"],
        mode=method.mode,
        coordinate_transformation_mode=method.coordinates,
        nearest_mode=method.nearest,
        exclude_outside=int(method.exclude_outside),
        antialias=int(method.antialias),
    )
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.DOUBLE, [len(values)]),
            helper.make_tensor_value_info("sizes", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [output])],
    )
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 19)])
    onnx.checker.check_model(model)
    feeds = {"x": values, "sizes": np.array([output])}
    result: np.ndarray = ReferenceEvaluator(model).run(None, feeds)[0]
    return result


@settings(deadline=None, max_examples=examples(150))
@given(
    extent=st.integers(2, 12),
    output=st.integers(2, 20),
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
    coordinates=st.sampled_from([*COORDINATES, "align_corners"]),
    nearest=st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
    exclude=st.booleans(),
    antialias=st.booleans(),
)
def test_every_mode_samples_what_the_reference_samples(
    extent: int,
    output: int,
    mode: str,
    coordinates: str,
    nearest: str,
    exclude: bool,
    antialias: bool,
) -> None:
    method = Method(
        mode,
        coordinates,
        nearest,
        exclude_outside=exclude and mode == "cubic",
        antialias=antialias and mode != "nearest",
    )
    values = np.random.default_rng(extent * 31 + output).standard_normal(extent)
    found = taps(method, extent, output, output / extent)
    ours = found.matrix(extent) @ values
    decided = [not is_left_to_rounding(method, i, extent, output) for i in range(output)]
    theirs = reference(method, values, output)
    np.testing.assert_allclose(ours[decided], theirs[decided], rtol=1e-5, atol=1e-5)


def is_left_to_rounding(method: Method, index: int, extent: int, output: int) -> bool:
    """Whether a place is one that no float is on, and where the reference's own error decides.

    That is a tie between two pixels, and a whole place too: a hair above it, the reference sees
    both neighbours equally far away, and takes the lower, in every mode.
    """
    if method.coordinates == "align_corners":
        step = Fraction(extent - 1, output - 1)
        place = index * step
    elif method.coordinates == "asymmetric":
        step = Fraction(extent, output)
        place = index * step
    else:
        step = Fraction(extent, output)
        place = (index + Fraction(1, 2)) * step - Fraction(1, 2)
    rounds = method.mode == "nearest" and method.nearest.startswith("round")
    is_tie = place.denominator in ((1, 2) if rounds else (1,))
    is_exact_in_binary = step.denominator & (step.denominator - 1) == 0
    return is_tie and not is_exact_in_binary


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weights_add_up_to_one(mode: str) -> None:
    found = taps(Method(mode, "half_pixel", antialias=True), 17, 5, 5 / 17)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1)


def test_places_outside_a_cropped_region_take_the_extrapolation_value() -> None:
    method = Method("linear", "tf_crop_and_resize")
    found = taps(method, 4, 4, 1.0, (-0.5, 1.5))
    assert found.outside.tolist() == [True, False, False, True]


@pytest.mark.parametrize("coordinates", [*COORDINATES, "align_corners"])
def test_nan_comes_through_the_same_pixels_as_in_onnxruntime(coordinates: str) -> None:
    """Whichever weight a pixel has: its place lies on another pixel but for a rounding."""
    pairs = [(7, 1), (49, 16384), *((n, m) for n in (2, 5, 41, 60) for m in (1, 3, 7, 50, 119))]
    for extent, output in pairs:
        node = helper.make_node(
            "Resize",
            ["x", "", "", "sizes"],
            ["y"],
            mode="linear",
            coordinate_transformation_mode=coordinates,
        )
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, extent, 1, extent])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, extent, 1, output])],
            [onnx.numpy_helper.from_array(np.array([1, extent, 1, output]), "sizes")],
        )
        opset = helper.make_opsetid("", 19)
        model = helper.make_model(graph, ir_version=9, opset_imports=[opset])
        session = onnxruntime.InferenceSession(model.SerializeToString())
        one_is_nan = np.where(np.eye(extent, dtype=bool), np.nan, 1).astype(np.float32)
        (found,) = session.run(None, {"x": one_is_nan.reshape(1, extent, 1, extent)})

        wanted = taps(Method("linear", coordinates), extent, output, output / extent)
        is_read = (wanted.indices[None] == np.arange(extent)[:, None, None]).any(axis=2)

        np.testing.assert_array_equal(is_read, np.isnan(found[0, :, 0]), f"{extent} to {output}")
