"""Models with parts in onnxruntime, from the command line: on this machine, and by the agent of an
emulated Raspberry Pi."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.building import run_edgekit
from support.needs import TWIN, needs
from support.twins import edgekit_json, twins_in

ML = "ai.onnx.ml"
X = np.float32([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 4]])
RIGHT = [121.0**2, 122.0**2, 121.0**2, 222.0**2]
"""1 or 2, as twice the first is above 0.5; 20, as the second is above -0.25; 100 or 200, as half
the third is above 1.5. Squared."""


def trees(folder: Path) -> Path:
    """A scaler, three trees that vote, and a compiled product."""
    tree = {
        "n_targets": 1,
        "nodes_treeids": [0, 0, 0, 1, 1, 1, 2, 2, 2],
        "nodes_nodeids": [0, 1, 2] * 3,
        "nodes_featureids": [0, 0, 0, 1, 0, 0, 2, 0, 0],
        "nodes_values": [0.5, 0, 0, -0.25, 0, 0, 1.5, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 3,
        "nodes_truenodeids": [1, 0, 0] * 3,
        "nodes_falsenodeids": [2, 0, 0] * 3,
        "target_treeids": [0, 0, 1, 1, 2, 2],
        "target_nodeids": [1, 2] * 3,
        "target_ids": [0] * 6,
        "target_weights": [1.0, 2.0, 10.0, 20.0, 100.0, 200.0],
    }
    by = {"scale": [2.0, 1.0, 0.5], "offset": [0.0] * 3}
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], "scale", domain=ML, **by),
        helper.make_node("TreeEnsembleRegressor", ["s"], ["t"], "trees", domain=ML, **tree),
        helper.make_node("Mul", ["t", "t"], ["y"], "square"),
    ]
    graph = helper.make_graph(
        nodes,
        "trees",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 1])],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    path = folder / "trees.onnx"
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), path)
    np.save(folder / "x.npy", X)
    return path


@needs("onnxruntime")
def test_the_report_says_why_and_what_it_costs(tmp_path: Path) -> None:
    trees(tmp_path)
    where = ("trees.onnx", "--board", "local")

    refused = run_edgekit("build", *where, folder=tmp_path)
    built = run_edgekit("build", *where, "--offload", "onnxruntime", "-o", "out", folder=tmp_path)
    ran = run_edgekit("run", "out", "--input", "x=x.npy", "--out", "made", folder=tmp_path)

    assert "--offload onnxruntime runs that part as it is" in refused.err
    assert built.code == 0, built.err
    assert "onnxruntime runs 2 operators that can't be compiled: " in built.err
    assert "its library is 28.0 MiB" in built.err
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    (region,) = manifest["regions"]
    assert region["operators"] == ["ai.onnx.ml.Scaler", "ai.onnx.ml.TreeEnsembleRegressor"]
    assert region["bytes"] > 500
    assert ran.code == 0, ran.err
    (made,) = (tmp_path / "made").rglob("*.npy")
    np.testing.assert_array_equal(np.load(made).reshape(-1), RIGHT)


@pytest.mark.slow
@needs("onnxruntime-rpi4", *TWIN)
def test_an_emulated_raspberry_pi_runs_trees(
    tmp_path: Path, twin_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees(tmp_path)
    monkeypatch.chdir(tmp_path)
    with twins_in(twin_cache):
        report = edgekit_json(
            *("deploy", "trees.onnx", "--board", "rpi4", "--twin"),
            *("--offload", "onnxruntime", "--no-bench"),
        )
    assert report["verification"]["passed"]
