"""What is known at import is computed then, except what has to stay as it is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgekit.models.onnx.folding import LARGEST_GROWTH, fold

OPSETS = {"": 17}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def node(operator: str, inputs: str, outputs: str = "y", **attributes: object) -> onnx.NodeProto:
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(operator, names, outputs.split(), **attributes)


def test_a_shape_is_computed() -> None:
    (shape,) = fold(node("Shape", "x"), [X], OPSETS) or []
    assert shape.tolist() == [2, 3]
    assert shape.dtype == np.int64


def test_the_same_value_may_be_read_twice_and_an_input_left_out() -> None:
    (total,) = fold(node("Add", "x x"), [X, X], OPSETS) or []
    np.testing.assert_array_equal(total, X + X)
    (clipped,) = fold(node("Clip", "x - high"), [X, None, np.float32(3)], OPSETS) or []
    np.testing.assert_array_equal(clipped, np.minimum(X, 3))


def test_outputs_come_in_the_order_of_the_node() -> None:
    first, second = fold(node("Split", "x", "a b", axis=0), [X], OPSETS) or []
    np.testing.assert_array_equal(first, X[:1])
    np.testing.assert_array_equal(second, X[1:])


@pytest.mark.parametrize("operator", ["DequantizeLinear", "QuantizeLinear"])
def test_a_quantised_constant_stays_with_its_scale(operator: str) -> None:
    stored = np.ones(3, np.int8 if operator == "DequantizeLinear" else np.float32)
    inputs = [stored, np.float32(0.5), np.int8(0)]
    assert fold(node(operator, "x s z"), inputs, OPSETS) is None


@pytest.mark.parametrize(
    "random",
    [node("RandomUniformLike", "x"), node("Bernoulli", "x"), node("Frobnicate", "x")],
    ids=lambda made: made.op_type,
)
def test_what_is_drawn_or_unknown_is_not_made_a_constant(random: onnx.NodeProto) -> None:
    assert fold(random, [X], OPSETS) is None


def test_an_operator_of_a_domain_without_a_version_is_not_computed() -> None:
    assert fold(node("Add", "x x", domain="com.example"), [X, X], OPSETS) is None


@pytest.mark.parametrize(("beyond", "is_folded"), [(0, True), (1, False)])
def test_a_constant_that_would_bloat_the_file_stays_computed(beyond: int, is_folded: bool) -> None:
    value = numpy_helper.from_array(np.array([1], np.uint8))
    shape = np.array([LARGEST_GROWTH + 8 + beyond])
    assert (
        fold(node("ConstantOfShape", "s", value=value), [shape], OPSETS) is not None
    ) is is_folded


def test_what_the_reference_cannot_compute_is_left_to_the_device() -> None:
    assert fold(node("MatMul", "x x"), [X, X], OPSETS) is None


@pytest.mark.parametrize(
    ("made", "inputs"),
    [
        (node("ConstantOfShape", "s"), [np.array([1 << 20, 1 << 20])]),
        (node("Expand", "x s"), [X, np.array([1 << 20, 1 << 10, 2, 3])]),
        (node("Tile", "x r"), [X, np.array([1 << 20, 1 << 20])]),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)
def test_what_would_fill_the_memory_is_never_computed(
    made: onnx.NodeProto, inputs: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(*anything: object) -> None:
        raise AssertionError("terabytes were asked for")

    monkeypatch.setattr("edgekit.models.onnx.folding.evaluate", computed)
    assert fold(made, inputs, OPSETS) is None
