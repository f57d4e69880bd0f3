"""Shapes of TFLite models: arithmetic on them is done at import, open ones are closed by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.relax_modules import operators_in
from support.tflite_models import Op, T, constant, run_both, tflite_bytes, write_model

from edgekit.base.errors import ModelError
from edgekit.base.events import Event, Events, Note
from edgekit.models import tflite
from edgekit.models.model import ModelSource, import_model, open_model, scan_model


def flattening(signature: tuple[int, ...]) -> bytes:
    """x -> x + 1, flattened through SHAPE, STRIDED_SLICE and PACK, as converters write it."""
    shape = (1, 4, 6)
    slicing = {"table": "StridedSliceOptions", "shrinkAxisMask": 1}
    return tflite_bytes(
        [
            T("x", shape, signature=signature),
            constant("one", np.float32(1)),
            T("y", shape, signature=signature),
            T("shape", (3,), "int32"),
            constant("b", np.array([0], "int32")),
            constant("e", np.array([1], "int32")),
            T("batch", (), "int32"),
            constant("rest", np.int32(24)),
            T("target", (2,), "int32"),
            T("flat", (1, 24), signature=(-1, 24)),
        ],
        [
            Op("ADD", ("x", "one"), ("y",), {"table": "AddOptions"}),
            Op("SHAPE", ("y",), ("shape",), {"table": "ShapeOptions", "outType": 2}),
            Op("STRIDED_SLICE", ("shape", "b", "e", "e"), ("batch",), slicing),
            Op(
                "PACK",
                ("batch", "rest"),
                ("target",),
                {"table": "PackOptions", "valuesCount": 2, "axis": 0},
            ),
            Op("RESHAPE", ("y", "target"), ("flat",), {"table": "ReshapeOptions"}),
        ],
        ["x"],
        ["flat"],
    )


def with_shape(source: ModelSource, **shapes: tuple[int, ...]) -> ModelSource:
    return open_model(source.path, shapes)


def test_shape_arithmetic_is_gone_after_import(tmp_path: Path) -> None:
    model = import_model(write_model(tmp_path, flattening((-1, 4, 6))))
    assert set(operators_in(model.module)) == {"add", "reshape"}
    assert "shape arithmetic computed at import" in model.repairs
    assert model.outputs[0].shape == (1, 24)


@pytest.mark.parametrize("batch", [1, 3])
def test_an_open_batch_takes_the_size_asked_for(batch: int, tmp_path: Path) -> None:
    source = with_shape(write_model(tmp_path, flattening((-1, 4, 6))), x=(batch, 4, 6))
    data = np.random.default_rng(0).standard_normal((batch, 4, 6)).astype("float32")
    found, expected = run_both(source, {"x": data})
    assert found["flat"].shape == (batch, 24)
    np.testing.assert_array_equal(found["flat"], expected["flat"])


def test_an_open_batch_is_one_unless_asked_and_the_user_is_told(tmp_path: Path) -> None:
    heard: list[Event] = []
    source = write_model(tmp_path, flattening((-1, 4, 6)))
    assert tflite.load(source, Events(heard.append)).inputs[0].shape == (1, 4, 6)
    assert any(isinstance(event, Note) and "'x'" in event.text for event in heard)


def test_other_open_dimensions_are_listed_with_the_option_that_closes_them(tmp_path: Path) -> None:
    source = write_model(tmp_path, flattening((-1, -1, 6)))
    with pytest.raises(ModelError, match=r"x \[\?, \?, 6\]") as caught:
        import_model(source)
    assert caught.value.hint == "--shape x=..."
    assert scan_model(source).inputs[0].open_dimensions == (1,)


@pytest.mark.parametrize("shape", [(1, 4, 7), (1, 24), (0, 4, 6)])
def test_a_shape_that_contradicts_the_file_is_refused(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    source = write_model(tmp_path, flattening((-1, 4, 6)))
    with pytest.raises(ModelError, match="cannot be made"):
        import_model(with_shape(source, x=shape))


def test_a_shape_for_an_input_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    source = write_model(tmp_path, flattening((-1, 4, 6)))
    with pytest.raises(ModelError, match="no input 'y'"):
        import_model(with_shape(source, y=(1, 4, 6)))


def test_constants_cannot_be_bound(tmp_path: Path) -> None:
    source = write_model(tmp_path, flattening((1, 4, 6)))
    with pytest.raises(ModelError, match="bound"):
        import_model(open_model(source.path, constants={"x": np.zeros(1)}))


def test_tensors_of_one_name_stay_apart(tmp_path: Path) -> None:
    content = tflite_bytes(
        [T("x", (4,)), T("y", (4,)), T("z", (4,))],
        [
            Op("EXP", ("x",), ("y",)),
            Op("ADD", ("x", "y"), ("z",), {"table": "AddOptions"}),
        ],
        ["x"],
        ["y", "z"],
    )
    renamed = content.replace(b"y\x00\x00\x00", b"x\x00\x00\x00")
    assert renamed != content
    data = np.array([-1, 0, 1, 2], "float32")
    found, expected = run_both(write_model(tmp_path, renamed), {"x": data})
    assert len(found) == 2
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)


def test_a_tensor_returned_twice_gets_two_names(tmp_path: Path) -> None:
    content = tflite_bytes(
        [T("x", (4,)), T("y", (4,))], [Op("EXP", ("x",), ("y",))], ["x"], ["y", "y"]
    )
    found, expected = run_both(write_model(tmp_path, content), {"x": np.zeros(4, "float32")})
    assert list(found) == list(expected) == ["y", "y@1"]


def test_rank_shape_and_fill_are_constants(tmp_path: Path) -> None:
    content = tflite_bytes(
        [
            T("x", (2, 3)),
            T("rank", (), "int32"),
            T("shape", (2,), "int32"),
            constant("five", np.float32(5)),
            T("filled", (2, 3)),
            T("y", (2, 3)),
        ],
        [
            Op("RANK", ("x",), ("rank",)),
            Op("SHAPE", ("x",), ("shape",), {"table": "ShapeOptions", "outType": 2}),
            Op("FILL", ("shape", "five"), ("filled",)),
            Op("ADD", ("x", "filled"), ("y",), {"table": "AddOptions"}),
        ],
        ["x"],
        ["y", "rank", "shape"],
    )
    data = np.arange(6, dtype="float32").reshape(2, 3)
    found, expected = run_both(write_model(tmp_path, content), {"x": data})
    for name, wanted in expected.items():
        np.testing.assert_array_equal(found[name], wanted)
        assert found[name].shape == wanted.shape


def test_arithmetic_on_constant_data_keeps_its_activation(tmp_path: Path) -> None:
    content = tflite_bytes(
        [
            T("x", (2,)),
            constant("a", np.array([-3.0, 2.0])),
            constant("b", np.array([1.0, 1.0])),
            T("c", (2,)),
            T("y", (2,)),
        ],
        [
            Op("ADD", ("a", "b"), ("c",), {"table": "AddOptions", "fusedActivationFunction": 1}),
            Op("ADD", ("x", "c"), ("y",), {"table": "AddOptions"}),
        ],
        ["x"],
        ["y"],
    )
    found, _ = run_both(write_model(tmp_path, content), {"x": np.zeros(2, "float32")})
    assert found["y"].tolist() == [0, 3]
