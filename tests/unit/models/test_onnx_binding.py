"""Shapes and constants given by the user close a model's inputs, or are refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.models.binding import Bound
from edgekit.models.model import ModelSource
from edgekit.models.onnx.binding import bind


def graph(**inputs: tuple[int, list[int | str | None] | None]) -> onnx.GraphProto:
    return helper.make_graph(
        [],
        "g",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in inputs.items()
        ],
        [],
    )


def bound(
    proto: onnx.GraphProto,
    shapes: dict[str, tuple[int, ...]] | None = None,
    constants: dict[str, np.ndarray] | None = None,
) -> Bound:
    return bind(proto, ModelSource(Path("m.onnx"), "onnx", "", shapes or {}, constants or {}))


IMAGE = (TensorProto.FLOAT, ["batch", 3, "height", None])


def test_open_inputs_are_all_listed_with_a_command_that_closes_them() -> None:
    with pytest.raises(ModelError) as caught:
        bound(graph(image=IMAGE, mask=(TensorProto.BOOL, ["n"])))
    assert "image [batch,3,height,?]" in caught.value.message
    assert "mask [n]" in caught.value.message
    assert caught.value.hint is not None
    assert "--shape image=1,3,224,224" in caught.value.hint
    assert "--shape mask=1" in caught.value.hint


def test_a_shape_closes_its_input_and_every_dimension_of_the_same_name() -> None:
    result = bound(
        graph(image=IMAGE, mask=(TensorProto.BOOL, ["batch", 2])), {"image": (4, 3, 8, 9)}
    )
    assert [spec.shape for spec in result.inputs] == [(4, 3, 8, 9), (4, 2)]
    assert [spec.dtype for spec in result.inputs] == ["float32", "bool"]


def test_an_input_of_unknown_rank_takes_any_shape() -> None:
    proto = graph(x=(TensorProto.FLOAT, None))
    assert bound(proto, {"x": (2, 5)}).inputs[0].shape == (2, 5)
    with pytest.raises(ModelError, match=r"x \[\.\.\.\]"):
        bound(proto)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((1, 3, 8), "3 dimensions"),
        ((1, 4, 8, 8), "fixed at 3"),
        ((0, 3, 8, 8), "below 1"),
        ((-1, 3, 8, 8), "below 1"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        bound(graph(image=IMAGE), {"image": shape})


def test_one_name_with_two_extents_is_refused() -> None:
    with pytest.raises(ModelError, match="'batch' is given as 1 and as 2"):
        bound(
            graph(a=(TensorProto.FLOAT, ["batch"]), b=(TensorProto.FLOAT, ["batch"])),
            {"a": (1,), "b": (2,)},
        )


def test_dimensions_without_a_name_have_nothing_to_do_with_each_other() -> None:
    proto = graph(a=(TensorProto.FLOAT, [None, 2]), b=(TensorProto.FLOAT, [None]))
    result = bound(proto, {"a": (3, 2), "b": (5,)})
    assert [spec.shape for spec in result.inputs] == [(3, 2), (5,)]
    with pytest.raises(ModelError, match=r"is open: b \[\?\]"):
        bound(proto, {"a": (3, 2)})


def test_a_dimension_fixed_at_nothing_is_fixed() -> None:
    assert bound(graph(x=(TensorProto.FLOAT, [0, 2]))).inputs[0].shape == (0, 2)


@pytest.mark.parametrize("option", ["shapes", "constants"])
def test_a_misspelt_name_gets_the_nearest_one(option: str) -> None:
    given = {"imagee": (1, 3, 8, 8)} if option == "shapes" else {"imagee": np.zeros(1)}
    with pytest.raises(ModelError) as caught:
        bound(graph(image=IMAGE), **{option: given})  # type: ignore[arg-type]
    assert caught.value.hint is not None
    assert "did you mean 'image'" in caught.value.hint


def test_a_constant_stops_being_an_input_and_takes_the_inputs_type() -> None:
    result = bound(
        graph(x=(TensorProto.FLOAT, [2]), k=(TensorProto.INT64, [1])),
        constants={"k": np.array([3], np.int32)},
    )
    assert [spec.name for spec in result.inputs] == ["x"]
    assert result.constants["k"].dtype == np.int64


def test_a_scalar_constant_may_come_as_one_value_in_a_list() -> None:
    result = bound(graph(k=(TensorProto.INT64, [])), constants={"k": np.array([3])})
    assert result.constants["k"].shape == ()


@pytest.mark.parametrize(
    ("value", "says"),
    [(np.array([1, 2]), "has shape"), (np.array([0.5]), "does not fit"), (np.array([300]), "fit")],
)
def test_a_constant_that_cannot_be_that_input_is_refused(value: np.ndarray, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        bound(graph(k=(TensorProto.UINT8, [1])), constants={"k": value})


def test_a_constant_may_be_nan() -> None:
    value = np.array([np.nan, 1.0], np.float32)
    result = bound(graph(k=(TensorProto.FLOAT16, [2])), constants={"k": value})
    assert np.isnan(result.constants["k"][0])


def test_a_constant_for_an_input_of_strings_is_refused() -> None:
    with pytest.raises(ModelError, match="holds string values"):
        bound(graph(k=(TensorProto.STRING, [1])), constants={"k": np.array([1])})


def test_stored_default_values_are_not_inputs() -> None:
    proto = graph(x=(TensorProto.FLOAT, [1]), w=(TensorProto.FLOAT, ["open"]))
    proto.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    assert [spec.name for spec in bound(proto).inputs] == ["x"]


def test_stored_sparse_values_are_not_inputs() -> None:
    proto = graph(x=(TensorProto.FLOAT, [1]), w=(TensorProto.FLOAT, ["open"]))
    one = onnx.numpy_helper.from_array(np.ones(1, np.float32), "w")
    place = onnx.numpy_helper.from_array(np.zeros(1, np.int64), "w.indices")
    proto.sparse_initializer.append(helper.make_sparse_tensor(one, place, [2]))
    assert [spec.name for spec in bound(proto).inputs] == ["x"]


@pytest.mark.parametrize(
    "kind", [TensorProto.STRING, TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.COMPLEX64]
)
def test_types_that_devices_do_not_take_are_refused(kind: int) -> None:
    with pytest.raises(UnsupportedModelError, match="devices don't take"):
        bound(graph(x=(kind, [1])))


def test_sequences_are_refused_as_inputs() -> None:
    proto = graph()
    proto.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [1]))
    with pytest.raises(UnsupportedModelError, match="sequence"):
        bound(proto)
