"""The runner of random graphs tells what is right from what is refused, wrong, failed or dead."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import onnx
import pytest
from graphs import running
from graphs.running import run_seeds
from graphs.ways import WAYS, Graph, Outcome, judged
from onnx import helper
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
