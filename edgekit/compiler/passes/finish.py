"""TVM's lowering of loop nests, followed by the passes that it lacks."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.tirx import compilation_pipeline

from edgekit.compiler.passes.compare_booleans import compare_booleans
from edgekit.compiler.passes.defined_arithmetic import defined_arithmetic
from edgekit.compiler.passes.keep_on_stack import keep_on_stack
from edgekit.compiler.passes.propagate_nan import propagate_nan
from edgekit.compiler.passes.take_maximum import take_maximum

_NAME = "edgekit"


def executable_of(module: Any, target: Any) -> Any:
    """Build the executable from scheduled kernels and the calls of them."""
    return relax.build(module, target, relax_pipeline=None, tir_pipeline=lowering())


def lowering() -> str:
    """Register the lowering and return its name: TVM takes a pipeline only by name."""
    compilation_pipeline.register_tir_pipeline(_NAME, _pipeline)
    return _NAME


def _pipeline() -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("s_tir")

    def finish() -> Any:
        return tvm.ir.transform.Sequential(
            [
                *(keep_on_stack(), take_maximum(), finish_host()),
                *(propagate_nan(), defined_arithmetic(), compare_booleans()),
            ]
        )

    return lower, finish, finish_device
