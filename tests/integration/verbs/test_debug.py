"""The first layer that is off: found in a model in which one is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.building import run_edgekit
from support.needs import needs
from support.tflite_models import Op, T, constant, tflite_bytes

import edgekit
from edgekit.base.errors import (
    InputError,
    ModelError,
    UnsupportedModelError,
    UsageError,
    VerificationError,
)
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
    with pytest.raises(UnsupportedModelError, match=r"none of \.onnx, \.tflite and \.pt2"):
        ws.debug(model, against=tmp_path / "net.keras", device="local")


def test_the_layers_of_a_bundle_are_those_of_its_model(tmp_path: Path) -> None:
    model = chain(tmp_path / "net.onnx", batch="n")
    ws = edgekit.Workspace(tmp_path)
    bundle = ws.build(model, board="local", shapes={"x": (3, 8)})

    report = ws.debug(bundle.path, of=model, against=chain(tmp_path / "w/net.onnx", wrong=4))

    assert report.first_off is not None and report.first_off.layer == "dense4"
    assert {layer.compared.elements for layer in report.layers} == {24}
    with pytest.raises(InputError, match="is not the model that"):
        ws.debug(bundle.path, of=chain(tmp_path / "else.onnx", wrong=1))
    with pytest.raises(UsageError, match="this is no bundle"):
        ws.debug(model, of=model, device="local", shapes={"x": (3, 8)})


def dense_layers(path: Path, wrong: int | None = None) -> Path:
    """Write int8 layers in a row as TFLite; the weights of one may be slightly wrong."""
    random = np.random.default_rng(7)
    tensors = [T("x", (1, 8), "int8", scale=0.05)]
    operators = []
    for k in range(4):
        weights = random.integers(-90, 90, (8, 8)).astype("int8")
        if k == wrong:
            weights[3, 5] += 20
        tensors += [
            constant(f"w{k}", weights, scale=0.01),
            constant(f"b{k}", np.zeros(8, "int32"), scale=0.01 * 0.05),
            T(f"v{k}", (1, 8), "int8", scale=0.05),
        ]
        given = "x" if k == 0 else f"v{k - 1}"
        options = {"table": "FullyConnectedOptions", "fusedActivationFunction": 0}
        names = (given, f"w{k}", f"b{k}")
        operators.append(Op("FULLY_CONNECTED", names, (f"v{k}",), options))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tflite_bytes(tensors, operators, ["x"], ["v3"]))
    return path


def test_layers_of_tflite_are_compared_in_steps(tmp_path: Path) -> None:
    model = dense_layers(tmp_path / "net.tflite")
    ws = edgekit.Workspace(tmp_path)

    right = ws.debug(model, device="local")
    wrong = ws.debug(model, against=dense_layers(tmp_path / "w/net.tflite", 2), device="local")

    assert [layer.value for layer in right.layers] == ["v0", "v1", "v2", "v3"]
    assert right.first_off is None
    assert {layer.compared.unit for layer in right.layers} == {"steps"}
    assert wrong.first_off is not None and wrong.first_off.layer == "FULLY_CONNECTED_2"
    assert "step" in str(wrong)


@pytest.mark.slow
@needs("torch", "onnxscript")
def test_layers_of_a_program_are_named_by_its_operators(tmp_path: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self, more: float) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
            with torch.no_grad():
                self.second.weight[3, 5] += more

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            halves = torch.split(torch.relu(self.first(x)), 4, 1)
            return self.second(torch.cat([halves[1], halves[0]], 1)) * 2

    def saved(name: str, more: float) -> Path:
        path = tmp_path / name / "net.pt2"
        path.parent.mkdir()
        program = torch.export.export(Net(more).eval(), (torch.zeros(2, 8),))
        torch.export.save(program, path)
        return path

    ws = edgekit.Workspace(tmp_path)
    report = ws.debug(saved("right", 0.0), against=saved("wrong", 0.5), device="local")

    operators = [layer.operator for layer in report.layers]
    assert operators == ["linear", "relu", "getitem", "getitem", "cat", "linear", "mul"]
    assert report.first_off is not None
    assert report.first_off.layer == "linear_1"
