"""Damaged and hostile ONNX files are refused in words; none is taken for a bug of edgekit's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.examples import examples

from edgekit.base.errors import EdgekitError, ModelError, UnsupportedModelError
from edgekit.models.model import import_model, open_model, scan_model

FLOAT = TensorProto.FLOAT
NUMBERS = (0, -1, 1, 2, 3, 7, 17, 69, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))


def value_info(name: str, shape: list[int] | None, element: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def function(name: str, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    return helper.make_function("my", name, ["a"], ["b"], nodes, opsets)


def calling(functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    """A model that calls the first of these functions."""
    first = helper.make_node(functions[0].name, ["x"], ["y"], name="call", domain="my")
    graph = helper.make_graph([first], "g", [value_info("x", [2])], [value_info("y", None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets, functions=functions)


def varied_model() -> onnx.ModelProto:
    """A bit of everything a file may hold: weights, shapes, a branch, steps, a function."""
    node = helper.make_node
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(operator, ["x"], ["o"])], name, [], [value_info("o", None)]
        )
        for name, operator in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        node("If", ["c"], ["i"], **branches),
        node("Conv", ["i", "w"], ["v"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        node("F", ["v"], ["f"], domain="my"),
        node("MaxPool", ["f"], ["m"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID"),
        node("Reshape", ["m", "to"], ["r"]),
        node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(8, np.float32))),
        node("Mul", ["r", "k"], ["s"]),
        node("QuantizeLinear", ["s", "scale", "zero"], ["y"], axis=1),
    ]
    weights = {
        "w": np.ones((2, 2, 3, 3), np.float32),
        "to": np.array([1, -1], np.int64),
        "scale": np.array(0.1, np.float32),
        "zero": np.array(3, np.uint8),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [value_info("x", [1, 2, 4, 4]), value_info("c", [], TensorProto.BOOL)],
        [value_info("y", None, TensorProto.UINT8)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    functions = [function("F", [helper.make_node("Relu", ["a"], ["b"])])]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets, functions=functions)


def look_at(data: bytes) -> None:
    """What every command does with a model; only edgekit's own errors may come of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        for look in (scan_model, import_model):
            try:
                look(open_model(path))
            except EdgekitError as error:
                assert error.exit_code != EdgekitError.exit_code, error.message


def test_the_model_that_is_damaged_below_is_sound_before(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(varied_model(), path)

    assert scan_model(open_model(path)).unsupported == ()
    assert [spec.shape for spec in import_model(open_model(path)).outputs] == [(1, 8)]


@settings(max_examples=examples(200))
@given(
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8)
)
def test_changed_bytes_are_refused_or_read(changes: list[tuple[float, int]]) -> None:
    data = bytearray(varied_model().SerializeToString())
    for place, byte in changes:
        data[int(place * len(data))] = byte

    look_at(bytes(data))


@settings(max_examples=examples(200))
@given(random=st.randoms(use_true_random=False))
def test_changed_fields_are_refused_or_read(random: Random) -> None:
    model = varied_model()
    for _ in range(random.choice((1, 1, 2, 4))):
        change(random, random.choice(list(messages(model.graph))))

    look_at(model.SerializeToString())


def messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in (value,) if isinstance(value, Message) else value:
                yield from messages(inner)


def change(random: Random, message: Any) -> None:
    """Change one field that is set: remove it, double it, or put in what does not belong there."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = random.choice(fields)
    is_message = field.type == field.TYPE_MESSAGE
    if isinstance(value, Message) or random.random() < 0.2:
        message.ClearField(field.name)
    elif isinstance(value, str | bytes | int | float):
        setattr(message, field.name, another(random, field))
    elif random.random() < 0.3:
        del value[random.randrange(len(value))]
    elif is_message:
        value.add().CopyFrom(random.choice(value))
    else:
        value[random.randrange(len(value))] = another(random, field)


def another(random: Random, field: Any) -> Any:
    if field.type == field.TYPE_STRING:
        return random.choice(("", "x", "y", "w", "axis", "Relu", "F", "Loop", "Concat", "my"))
    if field.type == field.TYPE_BYTES:
        return random.choice((b"", b"\xff\xfe", b"SAME_UPPER", b"0123"))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return random.choice((0.0, -1.0, float("nan"), float("inf")))
    if field.type == field.TYPE_ENUM:
        return random.choice([item.number for item in field.enum_type.values])
    fits = [n for n in NUMBERS if field.type != field.TYPE_INT32 or -(1 << 31) <= n < 1 << 31]
    return random.choice(fits)


def unknown_input_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = 69


def unknown_weight_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 69


def negative_extent(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -2


def endless_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 1 << 40


def huge_sparse_weight(model: onnx.ModelProto) -> None:
    sparse = model.graph.sparse_initializer.add(dims=[1 << 39])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "s"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "i"))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (unknown_input_type, "'x' has elements of the unknown type 69"),
        (unknown_weight_type, "the tensor 'w' has elements of the unknown type 69"),
        (negative_extent, "the tensor 'w' has an extent of -2"),
        (endless_opset, "asks for version 1099511627776"),
        (huge_sparse_weight, "the sparse tensor 's' can't be written out"),
    ],
)
def test_what_is_wrong_with_a_damaged_file_is_said(
    tmp_path: Path, damage: Callable[[onnx.ModelProto], None], says: str
) -> None:
    model = varied_model()
    damage(model)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)

    with pytest.raises(ModelError, match=says) as caught:
        import_model(open_model(path))
    assert caught.value.hint


def test_a_name_that_is_no_text_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(varied_model().SerializeToString().replace(b"Conv", b"C\xbcnv"))

    with pytest.raises(ModelError, match=r"NodeProto.op_type b'C\\xbcnv' is not text"):
        open_model(path)


def test_functions_that_call_each_other_in_a_circle_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    circle = [
        function("F", [helper.make_node("G", ["a"], ["b"], domain="my")]),
        function("G", [helper.make_node("F", ["a"], ["b"], domain="my")]),
    ]
    onnx.save(calling(circle), path)

    with pytest.raises(ModelError, match="its function 'F' calls itself"):
        open_model(path)


def test_a_small_file_that_writes_out_to_an_endless_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.models.onnx.importer.LONGEST_PROGRAM", 1000)
    doubling = [
        function(
            f"F{i}",
            [
                helper.make_node(f"F{i + 1}", ["a"], ["r"], domain="my"),
                helper.make_node(f"F{i + 1}", ["r"], ["b"], domain="my"),
            ],
        )
        for i in range(40)
    ]
    path = tmp_path / "model.onnx"
    onnx.save(calling([*doubling, function("F40", [helper.make_node("Relu", ["a"], ["b"])])]), path)

    with pytest.raises(UnsupportedModelError, match="longer than 1000 nodes"):
        import_model(open_model(path))
