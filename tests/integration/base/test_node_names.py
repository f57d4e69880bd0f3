"""Every decision about an operator names the node of the model file that it came from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.needs import import_needed
from support.offloading import named_network
from support.tflite_models import Op, T, constant, tflite_bytes, write_model

from edgekit.base.tvm_compat import load_tvm
from edgekit.models.model import ModelSource, import_model, open_model

torch = import_needed("torch")


def nodes_of(source: ModelSource) -> list[tuple[str, str]]:
    """Operator and node, once everything that folds away is gone."""
    load_tvm()
    from edgekit.backends.offloading import partition_model
    from edgekit.backends.partition import Selection

    decisions = partition_model(import_model(source), Selection(())).decisions
    return [(decision.operator, decision.node) for decision in decisions]


def test_onnx_nodes_keep_their_names_though_batch_norm_is_folded_away(tmp_path: Path) -> None:
    assert nodes_of(open_model(named_network(tmp_path / "net.onnx"))) == [
        ("nn.conv2d", "/stem/Conv"),
        ("add", "/stem/Norm"),
        ("nn.relu", "/stem/Relu"),
        ("nn.conv2d", "/depth/Conv"),
        ("add", "/depth/Norm"),
        ("nn.relu", "/depth/Relu"),
        ("mean", "/head/Pool"),
        ("reshape", "/head/Flatten"),
        ("matmul", "/head/Gemm"),
        ("nn.softmax", "/head/Softmax"),
    ]


def test_a_tflite_operator_is_called_after_what_it_computes(tmp_path: Path) -> None:
    weights = constant("w", np.ones((4, 3, 3, 4), "float32"))
    bias = constant("b", np.ones(4, "float32"))
    options = {
        "table": "Conv2DOptions", "padding": 1, "strideH": 1, "strideW": 1,
        "fusedActivationFunction": 1,
    }  # fmt: skip
    operators = [
        Op("CONV_2D", ("x", "w", "b"), ("features",), options),
        Op("LOGISTIC", ("features",), ("y",), {}),
    ]
    tensors = [
        T("x", (1, 6, 8, 4)), weights, bias, T("features", (1, 4, 6, 4)), T("y", (1, 4, 6, 4)),
    ]  # fmt: skip
    source = write_model(tmp_path, tflite_bytes(tensors, operators, ["x"], ["y"]))
    assert nodes_of(source) == [
        ("permute_dims", "features"),
        ("nn.conv2d", "features"),
        ("add", "features"),
        ("nn.relu", "features"),
        ("sigmoid", "y"),
        ("permute_dims", "y"),
    ]


class _Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.relu(self.convolution(x)))


@pytest.mark.filterwarnings("ignore")
def test_a_torch_operator_has_the_name_of_its_node_in_the_exported_graph(tmp_path: Path) -> None:
    program = torch.export.export(_Network().eval(), (torch.zeros(1, 3, 8, 8),))
    torch.export.save(program, tmp_path / "net.pt2")
    names = [node.name for node in program.graph.nodes]
    found = nodes_of(open_model(tmp_path / "net.pt2"))
    assert [operator for operator, _ in found] == ["nn.conv2d", "add", "nn.relu", "sigmoid"]
    assert all(node in names for _, node in found)
