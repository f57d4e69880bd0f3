"""A model calls by name only what a device has: the small runtime's functions, and its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.backends.offloading import compile_model
from edgekit.base.errors import UnsupportedModelError
from edgekit.base.tvm_compat import load_tvm
from edgekit.cross.runtime_functions import RUNTIME_FUNCTIONS
from edgekit.devices.local.device import worker_arguments
from edgekit.models.model import Model, ModelSource
from edgekit.profiles.cpu import this_cpu

NAMES = """
import ctypes, sys
sys.modules["torch"] = None
import tvm_ffi
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
names = tvm_ffi.registry.list_global_func_names()
print(*(name for name in names if name.startswith("vm.builtin.")))
"""


def compiled(call: Any) -> None:
    """Compile a model of one call on four numbers."""
    load_tvm()
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(call(builder, x))
        builder.emit_func_output(output)
    source = ModelSource(Path("test.onnx"), "onnx", "0" * 64)
    module = relax.transform.Normalize()(builder.get())
    compile_model(Model(source, module, (), (), ()), this_cpu()[1])


def test_the_table_is_what_the_small_runtime_registers() -> None:
    _, library = worker_arguments()
    said = subprocess.run(
        [sys.executable, "-c", NAMES, library], capture_output=True, text=True, check=True
    )

    assert set(said.stdout.split()) == RUNTIME_FUNCTIONS


def test_a_function_that_the_program_calls_is_refused_where_only_the_full_library_has_it() -> None:
    def call(builder: Any, x: Any) -> Any:
        from tvm import relax

        name = "tvm.contrib.random.uniform"
        return relax.call_dps_packed(name, x, relax.TensorType((4,), "float32"))

    with pytest.raises(
        UnsupportedModelError, match=r"function tvm\.contrib\.random\.uniform"
    ) as no:
        compiled(call)
    assert no.value.hint


def test_a_function_that_a_kernel_calls_is_refused_too_with_the_operators_name() -> None:
    def call(builder: Any, x: Any) -> Any:
        from tvm import topi

        return builder.emit_te(topi.argsort, x, primfunc_name_hint="ranking")

    with pytest.raises(UnsupportedModelError, match=r"operator ranking .* tvm\.contrib\.sort\.arg"):
        compiled(call)


def test_a_model_that_calls_what_a_device_has_is_compiled() -> None:
    def call(builder: Any, x: Any) -> Any:
        from tvm import relax

        return relax.op.add(x, relax.const(np.ones(4, "float32")))

    compiled(call)
