"""Relax modules for tests of single passes: imported, looked into, run on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.base.tvm_compat import load_tvm

if TYPE_CHECKING:
    import onnx


def relax_of(model: onnx.ModelProto) -> Any:
    """The model as TVM's own importer gives it: what a pass is handed at its most raw."""
    load_tvm()
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.relax.transform import CanonicalizeBindings

    return CanonicalizeBindings()(from_onnx(model))


def operators_in(module: Any) -> list[str]:
    """The name of each operator that `main` calls, in order."""
    from tvm import relax

    names: list[str] = []

    def note(expression: Any) -> None:
        if isinstance(expression, relax.Call) and hasattr(expression.op, "name"):
            names.append(expression.op.name.removeprefix("relax."))

    relax.analysis.post_order_visit(module["main"], note)
    return names


def without_dead_code(module: Any) -> Any:
    from tvm.relax.transform import DeadCodeElimination

    return DeadCodeElimination()(module)


def run_module(module: Any, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Compile with TVM's own default pipeline, none of ours, and run `main` once.

    LLVM optimises nothing: it would take two thirds of the time."""
    tvm = load_tvm()
    from tvm import relax

    executable = tvm.compile(module, tvm.target.Target({"kind": "llvm", "opt-level": 0}))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(feeds[parameter.name]) for parameter in module["main"].params]
    result = machine["main"](*arguments)
    tensors = [result] if hasattr(result, "numpy") else list(result)
    return [tensor.numpy() for tensor in tensors]
