"""`support.deployed`: what tests compare with an oracle runs as a deployment runs it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.compiling import compiled_from
from support.deployed import RegionInLab, run_deployed
from support.onnx_models import onnx_model
from support.region_lab import Runs

from edgekit.backends.base import Options, Region, Tensor
from edgekit.backends.offloading import OffloadedModel
from edgekit.base.errors import DeviceError
from edgekit.base.tvm_compat import load_tvm
from edgekit.compiler.compile import Machine

X = np.array([3, 1, 2, 0], "float32")
REGION = Region(
    "edgekit_test_region", "toy", (), (Tensor("x", (4,), "float32"),), (Tensor("y", (4,), "int64"),)
)


def doubling() -> OffloadedModel:
    return compiled_from(
        onnx_model([helper.make_node("Add", ["x", "x"], ["y"])], {"x": [4]}, ["y"], {})
    )


def calling(call: Callable[[Any, Any], Any]) -> OffloadedModel:
    """A program of one call, by TVM's own pipeline, which refuses nothing."""
    tvm = load_tvm()
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(call(builder, x))
        builder.emit_func_output(output)
    executable = tvm.compile(builder.get(), tvm.target.Target("llvm"))
    return replace(doubling(), code=Machine(executable, (), checks_indices=False))


def sorting(builder: Any, x: Any) -> Any:
    from tvm import topi

    return builder.emit_te(topi.argsort, x)


def region_call(builder: Any, x: Any) -> Any:
    from tvm import relax

    return relax.call_dps_packed(REGION.symbol, x, relax.TensorType((4,), "int64"))


def test_a_function_of_the_compilers_process_is_missing() -> None:
    """`tvm.contrib.sort.argsort` gives the right numbers in this process, and none on a device."""
    tvm = load_tvm()
    compiled = calling(sorting)
    machine = tvm.relax.VirtualMachine(compiled.code.executable, tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(X)).numpy(), [3, 1, 2, 0])

    with pytest.raises(DeviceError, match=r"tvm\.contrib\.sort\.argsort"):
        run_deployed(compiled, [X])

    (sums,) = run_deployed(doubling(), [X])
    np.testing.assert_array_equal(sums, X + X)


class Ranking:
    """A lab that sorts, and refuses to where the compiler is loaded."""

    def __init__(self, region: Region, options: Options) -> None:
        self.region = region

    def __call__(self, x: np.ndarray) -> Sequence[np.ndarray]:
        loaded = [name for name in ("tvm", "tvm.relax") if sys.modules.get(name) is not None]
        assert not loaded, f"{loaded} are loaded"
        return [np.argsort(x)]


class Dying(Ranking):
    def __call__(self, x: np.ndarray) -> Sequence[np.ndarray]:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError


def in_lab(make: Callable[[Region, Options], Runs]) -> list[np.ndarray]:
    return run_deployed(calling(region_call), [X], labs=[RegionInLab(make, REGION, {})])


def test_a_lab_computes_a_region_where_no_compiler_is_loaded() -> None:
    (order,) = in_lab(Ranking)
    np.testing.assert_array_equal(order, np.argsort(X))


def test_a_crash_costs_one_model() -> None:
    with pytest.raises(DeviceError, match="crashed on local while running"):
        in_lab(Dying)

    (order,) = in_lab(Ranking)
    np.testing.assert_array_equal(order, np.argsort(X))
