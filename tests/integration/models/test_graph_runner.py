"""The runner of random graphs tells what is right from what is refused, wrong, failed or dead,
and a few of nnsmith's graphs go every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import running
from graphs.cases import graph_for
from graphs.running import run_seeds
from graphs.ways import WAYS, Graph, Outcome, in_c, judged, taken
from onnx import helper
from support.building import CHECKOUT, environment
from support.needs import needs
from support.onnx_models import onnx_model

from edgekit.base.errors import BuildError, UnsupportedModelError


def wrong(graph: Graph) -> Outcome:
    return judged(graph, {name: value + 1 for name, value in graph.expected.items()})


def refused(graph: Graph) -> Outcome:
    raise UnsupportedModelError("there is no such operator")


def failed(graph: Graph) -> Outcome:
    raise BuildError("TVM failed in phase layout: tuple index out of range")


def dead(graph: Graph) -> Outcome:
    os.kill(os.getpid(), signal.SIGSEGV)
    return Outcome("right")


def test_every_outcome_is_told_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {
        "right": lambda graph: judged(graph, graph.expected),
        "wrong": wrong,
        "refused": refused,
        "failed": failed,
        "dead": dead,
    }
    for name, way in ways.items():
        monkeypatch.setitem(WAYS, name, way)  # type: ignore[arg-type]
    monkeypatch.setattr(running, "_warm_up", lambda: None)
    model = onnx_model([helper.make_node("Neg", ["x"], ["y"])], {"x": [2, 3]}, ["y"], {})
    onnx.save(model, tmp_path / "7.onnx")

    results = run_seeds(tmp_path, [7], list(ways), tmp_path / "log.jsonl")

    words = {result.way: result.word for result in results}
    assert words == {
        "right": "right",
        "wrong": "WRONG",
        "refused": "refused",
        "failed": "FAILED",
        "dead": "FAILED",
    }
    assert [result.way for result in results if result.is_fault] == ["wrong", "failed", "dead"]
    (tmp_path / "7.onnx").unlink()
    assert run_seeds(tmp_path, [7], list(ways), tmp_path / "log.jsonl") == results


def test_c_is_not_written_of_what_no_microcontroller_holds(tmp_path: Path) -> None:
    """nnsmith makes weights of 200 MB, whose C a compiler reads for minutes."""
    weights = {"w": np.ones((1, 5_000_000), np.float32)}
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)]
    onnx.save(onnx_model(nodes, {"x": [1, 5_000_000]}, ["y"], weights), tmp_path / "0.onnx")
    graph = graph_for(tmp_path / "0.onnx")
    assert isinstance(graph, Graph)

    outcome = taken(in_c, graph)

    assert outcome.word == "refused"
    assert "20,000,000 bytes" in outcome.reason


@needs("nnsmith", "torch", "ncnn", "onednn")
def test_a_few_of_nnsmiths_graphs_are_right_or_refused_every_way(tmp_path: Path) -> None:
    """`make graph-tests` runs thousands. The seed decides how many operators a graph has."""
    paths = os.pathsep.join((str(CHECKOUT), str(CHECKOUT / "tests")))
    done = subprocess.run(
        [sys.executable, "-m", "graphs", "2-4", "--folder", "graphs", "--json", "results.json"],
        cwd=tmp_path,
        env=environment({"PYTHONPATH": paths}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results) == 3 * len(WAYS)
    assert {result["way"] for result in results if result["word"] == "right"} == set(WAYS)
