"""Branches and loops that data decides, as lists of steps that a step runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.c_builds import SANITIZED, built_tree, make
from support.control_models import MODELS, Decided
from support.deployed import run_deployed
from support.needs import import_needed
from support.onnx_models import judged_by_onnxruntime

from edgekit.aot.native.write import NativeProgram
from edgekit.aot.operators import Loop
from edgekit.aot.write import write_vectors
from edgekit.backends.offloading import OffloadedModel, compile_model
from edgekit.base.errors import UnsupportedModelError
from edgekit.models.model import Model, import_model, open_model
from edgekit.profiles.board import load_board


def imported(proto: onnx.ModelProto, folder: Path) -> Model:
    onnx.save(proto, folder / "model.onnx")
    return import_model(open_model(folder / "model.onnx"))


def compiled(model: Model, *, linked: bool = True) -> OffloadedModel:
    return compile_model(model, load_board("local").target, linked=linked)


@pytest.mark.parametrize("name", MODELS)
def test_a_program_decides_as_onnxruntime_does(name: str, tmp_path: Path) -> None:
    decided = MODELS[name]
    made = compiled(imported(decided.proto, tmp_path))

    assert isinstance(made.code, NativeProgram)
    for feeds in decided.feeds:
        found = run_deployed(made, list(feeds.values()))
        for one, wanted in zip(found, judged_by_onnxruntime(decided.proto, feeds), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6, err_msg=str(feeds))


@pytest.mark.parametrize("name", MODELS)
def test_in_c_too(name: str, tmp_path: Path) -> None:
    decided = MODELS[name]
    tree = built_tree(decided.proto, tmp_path / "tree")
    plan = tree.compiled.plan
    ends = plan.program.inputs, plan.program.outputs

    for feeds in decided.feeds:
        wanted = judged_by_onnxruntime(decided.proto, feeds)
        names = [spec.name for spec in plan.program.outputs]
        expected = dict(zip(names, wanted, strict=True))
        write_vectors(tree.folder, plan.origin, ends, feeds, expected)
        said = make(tree.folder, "test", f"CFLAGS={' '.join(SANITIZED)}")
        assert said.returncode == 0, said.stdout + said.stderr


def test_the_virtual_machine_computes_both_branches(tmp_path: Path) -> None:
    decided = MODELS["an If inside an If"]
    made = compiled(imported(decided.proto, tmp_path), linked=False)

    for feeds in decided.feeds:
        found = run_deployed(made, list(feeds.values()))
        for one, wanted in zip(found, judged_by_onnxruntime(decided.proto, feeds), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)


def test_the_virtual_machine_has_no_loop_that_data_ends(tmp_path: Path) -> None:
    model = imported(MODELS["a Loop with an early exit"].proto, tmp_path)

    with pytest.raises(UnsupportedModelError, match="a loop that data ends"):
        compiled(model, linked=False)


def test_a_state_that_never_changes_and_a_tensor_handed_through_are_not_copied(
    tmp_path: Path,
) -> None:
    made = compiled(imported(MODELS["a Loop with an early exit"].proto, tmp_path))

    assert isinstance(made.code, NativeProgram)
    (loop,) = (one.operator for one in made.code.program.steps if isinstance(one.operator, Loop))
    assert loop.rule.states == 4, "whether it goes on, its number, the vector and the count"


def test_branches_of_one_memory_take_what_the_larger_one_needs(tmp_path: Path) -> None:
    def arena(then: int, other: int) -> int:
        text = f"""
            g (float[8] x) => (float y) <float[1, {then}] a = {{{ones(then)}}},
                float[1, {other}] b = {{{ones(other)}}}> {{
              total = ReduceSum <keepdims = 0> (x)
              zero = Constant <value_float = 0.0> ()
              positive = Greater (total, zero)
              column = Constant <value_ints = [8, 1]> ()
              wide = Reshape (x, column)
              y = If (positive) <
                then_branch = one () => (float p) {{ c = Mul (wide, a) d = Softmax <axis = 0> (c)
                    p = ReduceMax <keepdims = 0> (d) }},
                else_branch = two () => (float q) {{ e = Mul (wide, b) f = Softmax <axis = 0> (e)
                    q = ReduceMax <keepdims = 0> (f) }}
              >
            }}
        """
        code = compiled(imported(Decided(text, ()).proto, tmp_path)).code
        assert isinstance(code, NativeProgram)
        return code.arena.bytes

    assert arena(64, 512) == arena(512, 64) == arena(512, 512)


def ones(count: int) -> str:
    return ", ".join(["1"] * count)


def test_branches_of_different_shapes_are_refused(tmp_path: Path) -> None:
    text = """
        g (float[4] x, bool c) => (float[N] y) {
          y = If (c) <
            then_branch = one () => (float[4] p) { p = Neg (x) },
            else_branch = two () => (float[8] q) { q = Concat <axis = 0> (x, x) }
          >
        }
    """
    with pytest.raises(UnsupportedModelError, match=r"\[4\] of float32 and \[8\] of float32"):
        imported(Decided(text, ()).proto, tmp_path)


def test_a_branch_and_a_loop_of_pytorch(tmp_path: Path) -> None:
    torch = import_needed("torch")
    from torch._higher_order_ops.while_loop import while_loop

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = torch.cond(x.sum() > 0, lambda v: self.first(v).relu(), self.second, (x,))
            return while_loop(
                lambda k, v: (v.abs().sum() < 100) & (k < 50),
                lambda k, v: (k + 1, v * 1.5 + self.first.weight.sum()),
                (torch.tensor(0), y),
            )

    torch.manual_seed(0)
    network = Network().eval()
    example = torch.ones(2, 4)
    torch.export.save(torch.export.export(network, (example,)), tmp_path / "model.pt2")
    made = compiled(import_model(open_model(tmp_path / "model.pt2")))

    for x in (example, -example, 100 * example):
        found = run_deployed(made, [x.numpy()])
        with torch.no_grad():
            wanted = network(x)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-5)
