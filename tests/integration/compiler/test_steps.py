"""What compiled code says of its steps: layers of the model, in every form of code."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support.building import write_model
from support.loop_models import recurrent

from edgekit.backends.offloading import compile_model
from edgekit.models import control
from edgekit.models.model import Model, import_model, open_model
from edgekit.profiles.board import load_board


def nodes_of(path: Path) -> set[str]:
    graph = onnx.load(path).graph
    return {node.name or node.output[0] for node in graph.node}


def imported(path: Path) -> Model:
    return import_model(open_model(path))


@pytest.mark.parametrize("with_runtime", [False, True])
def test_each_kernel_has_layers_of_the_model(with_runtime: bool, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.onnx")

    made = compile_model(
        imported(path), load_board("local").target, linked=True, with_runtime=with_runtime
    )

    steps = made.code.steps
    assert made.code.needs_runtime is with_runtime
    assert {step.kind for step in steps} == {"kernel"}
    assert all(step.layers and nodes_of(path).issuperset(step.layers) for step in steps)
    if with_runtime:
        assert {step.name for step in steps} == set(made.kernels)
    else:
        assert all(step.bytes for step in steps)


def test_a_loop_names_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "SHORT_LOOP", 0)
    path = tmp_path / "model.onnx"
    onnx.save(recurrent(7, 2, 3, lengths=False), path)

    made = compile_model(imported(path), load_board("local").target, linked=True)

    loops = [step for step in made.code.steps if step.kind == "loop"]
    assert loops
    assert all(nodes_of(path).issuperset(loop.layers) and loop.layers for loop in loops)
