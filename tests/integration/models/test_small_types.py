"""Floats and integers of eight bits and less at the ends of a model, which are bytes."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from support.deployed import run_deployed

import edgekit
from edgekit.backends.offloading import compile_model
from edgekit.models.model import import_model, open_model
from edgekit.models.onnx.small_types import FLOATS, INTEGERS, as_bytes, byte_type
from edgekit.profiles.board import load_board

SIGNED = sorted(element for element, name in FLOATS.items() if "e8m0" not in name)


def there_and_back(path: Path, element: int, values: np.ndarray) -> Path:
    """Cast floats to a small type, which is an output, and another input of it to floats."""
    nodes = [
        helper.make_node("Cast", ["x"], ["small"], to=element),
        helper.make_node("Cast", ["s"], ["number"], to=onnx.TensorProto.FLOAT),
    ]
    ends = {"x": onnx.TensorProto.FLOAT, "s": element, "small": element, "number": 1}
    inputs, outputs = (
        [helper.make_tensor_value_info(name, ends[name], values.shape) for name in names]
        for names in (("x", "s"), ("small", "number"))
    )
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("element", SIGNED)
def test_floats_round_as_ml_dtypes_rounds(element: int, tmp_path: Path) -> None:
    dtype = getattr(ml_dtypes, FLOATS[element])
    codes = np.arange(16 if "float4" in FLOATS[element] else 256, dtype=np.uint8)
    exact = codes.view(dtype).astype(np.float32)
    finite = np.unique(exact[np.isfinite(exact)])
    middle = (finite[:-1] + finite[1:]) / 2
    around = [middle, np.nextafter(middle, np.float32(-9)), np.nextafter(middle, np.float32(9))]
    values = np.concatenate([finite, *around]).astype(np.float32)
    stored = np.resize(codes, values.shape)
    model = import_model(open_model(there_and_back(tmp_path / "m.onnx", element, values)))

    made = compile_model(model, load_board("local").target, linked=True)
    small, number = run_deployed(made, [values, stored])

    np.testing.assert_array_equal(small, as_bytes(values.astype(dtype)))
    np.testing.assert_array_equal(number, stored.view(dtype).astype(np.float32))


def test_a_bundle_takes_and_gives_bytes_and_is_verified(tmp_path: Path) -> None:
    element = next(iter(INTEGERS))
    values = np.array([-7.9, -1.0, 0.0, 6.2], np.float32)
    path = there_and_back(tmp_path / "m.onnx", element, values)
    ws = edgekit.Workspace(tmp_path)

    bundle = ws.build(path, board="local", out=tmp_path / "bundle")
    stored = np.array([-8, 7, 0, 3], np.int8)
    found = ws.run(bundle, {"x": values, "s": stored})

    assert byte_type(element) == onnx.TensorProto.INT8
    assert found["small"].tolist() == [-7, -1, 0, 6]
    assert found["number"].tolist() == stored.tolist()
