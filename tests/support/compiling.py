"""Models through edgekit's whole compiler in this process, and their results beside a judge's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.backends.offloading import OffloadedModel, compile_model
from edgekit.models.model import Model, ModelSource
from edgekit.profiles.cpu import Target, this_cpu
from support.deployed import run_deployed
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.relax_modules import relax_of

if TYPE_CHECKING:
    import onnx

NEAR = 2e-5
"""The tolerance, of the largest element: single precision loses it in other orders."""


def compiled_from(model: onnx.ModelProto, target: Target | None = None) -> OffloadedModel:
    source = ModelSource(Path("test.onnx"), "onnx", "0" * 64)
    return compile_model(Model(source, relax_of(model), (), (), ()), target or this_cpu()[1])


def results_of(compiled: OffloadedModel, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run what was compiled for this machine in the process that a deployment uses."""
    return run_deployed(compiled, feeds)


def assembly_of(model: Model, target: Target) -> str:
    """What LLVM makes of all kernels."""
    found = [compile_model(model, target).code.executable.mod]
    for module in found:
        found += list(module.imports)
    (source,) = (module.inspect_source("s") for module in found if module.kind == "llvm")
    return str(source)


def check_against_onnxruntime(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    *,
    target: Target | None = None,
    near: float = NEAR,
) -> OffloadedModel:
    """Compile, run and compare; gives what was compiled."""
    compiled = compiled_from(model, target)
    names = [value.name for value in model.graph.input]
    found = results_of(compiled, [feeds[name] for name in names])
    expected = judged_by_onnxruntime(model, feeds)
    for mine, judge in zip(found, expected, strict=True):
        assert mine.shape == judge.shape
        assert mine.dtype == judge.dtype
        finite = judge[np.isfinite(judge)]
        largest = float(np.abs(finite).max()) if finite.size else 0.0
        np.testing.assert_allclose(mine, judge, rtol=near, atol=near * largest + 1e-7)
    return compiled


def one_node_model(
    operator: str,
    shape: Sequence[int],
    constants: Sequence[np.ndarray | None] = (),
    **attributes: object,
) -> onnx.ModelProto:
    """One operator of an input `x`; None among the constants stands for an operand left out."""
    from onnx import helper

    weights = {f"c{i}": array for i, array in enumerate(constants) if array is not None}
    names = ["" if array is None else f"c{i}" for i, array in enumerate(constants)]
    node = helper.make_node(operator, ["x", *names], ["y"], **attributes)
    return onnx_model([node], {"x": shape}, ["y"], weights)


def random_array(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype("float32")
