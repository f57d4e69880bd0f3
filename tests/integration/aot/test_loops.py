"""Loops of recurrent layers, Scan and Loop as lists of steps that a step repeats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from support.c_builds import STRICT, built_tree, make
from support.deployed import run_deployed
from support.loop_models import LAYERS, loop, recurrent, scan
from support.onnx_models import judged_by_onnxruntime

from edgekit.aot.native.write import NativeProgram
from edgekit.aot.operators import Loop
from edgekit.backends.offloading import OffloadedModel, compile_model
from edgekit.compiler.macs import count_macs
from edgekit.compiler.passes.nan_paths import nan_obstacle
from edgekit.models import control
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import Model, import_model, open_model
from edgekit.profiles.board import load_board

MODELS = {
    "an odd number of steps": recurrent(7, 2, 3, lengths=False),
    "an even number, with lengths": recurrent(6, 3, 4, lengths=True),
    "aligned slices": recurrent(5, 1, 16, lengths=False),
    "one step": recurrent(1, 2, 3, lengths=True),
    "two steps": recurrent(2, 1, 16, lengths=False),
    "scan": scan(6),
    "loop": loop(5),
}


@pytest.fixture(autouse=True)
def _no_loop_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "SHORT_LOOP", 0)


def imported(proto: onnx.ModelProto, folder: Path) -> Model:
    onnx.save(proto, folder / "model.onnx")
    return import_model(open_model(folder / "model.onnx"))


def compiled(model: Model, *, linked: bool = True) -> OffloadedModel:
    return compile_model(model, load_board("local").target, linked=linked)


def loops_of(code: object) -> list[Loop]:
    assert isinstance(code, NativeProgram)
    return [step.operator for step in code.program.steps if isinstance(step.operator, Loop)]


@pytest.mark.parametrize("name", MODELS)
def test_a_program_repeats_steps_and_its_numbers_are_right(name: str, tmp_path: Path) -> None:
    model = imported(MODELS[name], tmp_path)
    feeds = reference_inputs(model.inputs, 0)

    made = compiled(model)
    found = run_deployed(made, list(feeds.values()))

    directions = sum(count for _, count, _ in LAYERS.values())
    assert len(loops_of(made.code)) == (1 if name in ("scan", "loop") else directions)
    for one, wanted in zip(found, judged_by_onnxruntime(MODELS[name], feeds), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["an odd number of steps", "an even number, with lengths", "scan", "loop"]
)
def test_in_c_too(name: str, tmp_path: Path) -> None:
    tree = built_tree(MODELS[name], tmp_path / "tree")

    said = make(tree.folder, "test", f"CFLAGS=-O1 {' '.join(STRICT)}")

    assert any(isinstance(step.operator, Loop) for step in tree.compiled.plan.program.steps)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("name", ["two steps", "scan", "loop"])
def test_the_virtual_machine_gets_them_written_out(name: str, tmp_path: Path) -> None:
    model = imported(MODELS[name], tmp_path)
    feeds = reference_inputs(model.inputs, 0)

    found = run_deployed(compiled(model, linked=False), list(feeds.values()))

    for one, wanted in zip(found, judged_by_onnxruntime(MODELS[name], feeds), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)


def test_a_thousand_steps_take_no_more_code_than_ten(tmp_path: Path) -> None:
    sizes = []
    for steps in (10, 1000):
        made = compiled(imported(recurrent(steps, 1, 8, lengths=False), tmp_path))
        assert isinstance(made.code, NativeProgram)
        sizes.append((len(made.kernels), len(made.code.program.steps)))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("name", ["aligned slices", "scan"])
def test_nan_goes_through_a_loop_as_through_its_body(name: str, tmp_path: Path) -> None:
    assert nan_obstacle(imported(MODELS[name], tmp_path).module) == ""


def test_multiplications_of_a_body_count_each_time(tmp_path: Path) -> None:
    once, twice = (
        count_macs(imported(recurrent(steps, 1, 4, lengths=False), tmp_path).module)
        for steps in (5, 10)
    )
    assert twice == 2 * once


def test_steps_of_a_body_have_the_names_of_their_layers(tmp_path: Path) -> None:
    (repeated,) = loops_of(compiled(imported(scan(6), tmp_path)).code)

    layers = {layer for step in repeated.body.steps for layer in step.layers}
    assert layers == {"/scan"}
