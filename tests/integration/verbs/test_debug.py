"""The first layer that is off: found in a model in which one is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.building import run_edgekit

import edgekit
from edgekit.base.errors import ModelError, UnsupportedModelError, VerificationError
from edgekit.verbs.debug import raise_if_off

LAYERS = 18
"""More than one variant returns at once."""


def chain(path: Path, *, wrong: int | None = None, batch: int | str = 1, prefix: str = "v") -> Path:
    """Write dense layers in a row; the weights of one may be slightly wrong."""
    random = np.random.default_rng(7)
    nodes, weights = [], []
    for k in range(LAYERS):
        values = (random.standard_normal((8, 8)) / 3).astype(np.float32)
        if k == wrong:
            values[3, 5] += 0.05
        weights.append(numpy_helper.from_array(values, f"w{k}"))
        given = "x" if k == 0 else f"{prefix}{k - 1}"
        nodes.append(helper.make_node("MatMul", [given, f"w{k}"], [f"{prefix}{k}"], f"dense{k}"))
    shape = [batch, 8]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"{prefix}{LAYERS - 1}", TensorProto.FLOAT, shape)],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def test_every_layer_is_compared_in_order_and_agrees(tmp_path: Path) -> None:
    model = chain(tmp_path / "net.onnx", batch="n")

    report = edgekit.Workspace(tmp_path).debug(model, device="local", shapes={"x": (2, 8)})

    assert [layer.layer for layer in report.layers] == [f"dense{k}" for k in range(LAYERS)]
    assert all(layer.compared.elements == 16 for layer in report.layers)
    assert all(layer.compared.largest > 0 for layer in report.layers)
    assert report.first_off is None
    raise_if_off(report)


@pytest.mark.parametrize("wrong", [2, LAYERS - 1])
def test_the_first_layer_that_is_off_is_named(wrong: int, tmp_path: Path) -> None:
    right = chain(tmp_path / "net.onnx")
    altered = chain(tmp_path / "altered" / "net.onnx", wrong=wrong)

    report = edgekit.Workspace(tmp_path).debug(altered, against=right, device="local")

    first = report.first_off
    assert first is not None
    assert (first.layer, first.operator, first.value) == (f"dense{wrong}", "MatMul", f"v{wrong}")
    assert 0 < first.compared.max_error < first.compared.largest
    assert [layer.layer for layer in report.layers] == [f"dense{k}" for k in range(LAYERS)]
    with pytest.raises(VerificationError, match=rf"is dense{wrong} \(MatMul\), off by "):
        raise_if_off(report)


def test_the_command_names_it_and_fails(tmp_path: Path) -> None:
    chain(tmp_path / "net.onnx")
    chain(tmp_path / "altered.onnx", wrong=4)
    words = ("debug", "altered.onnx", "--against", "net.onnx", "--device", "local")

    strict = run_edgekit(*words, folder=tmp_path)
    wide = run_edgekit(*words, "--atol", "10", folder=tmp_path)

    assert strict.code == VerificationError.exit_code
    assert "the first layer that is off on local is dense4 (MatMul)" in strict.err
    rows = [line.split() for line in strict.out.splitlines() if line.startswith("dense")]
    assert [row[-1] for row in rows[:5]] == ["agrees"] * 4 + ["OFF"]
    assert wide.code == 0, wide.err


def test_what_has_no_inner_values_is_refused(tmp_path: Path) -> None:
    model = chain(tmp_path / "net.onnx")
    ws = edgekit.Workspace(tmp_path)

    with pytest.raises(ModelError, match="no value of the same name"):
        ws.debug(model, against=chain(tmp_path / "other.onnx", prefix="u"), device="local")
    with pytest.raises(UnsupportedModelError, match="is no ONNX model"):
        ws.debug(model, against=tmp_path / "net.tflite", device="local")
