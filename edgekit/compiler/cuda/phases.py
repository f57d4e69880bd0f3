"""The passes for models that run on a GPU without a library; compare pipeline.py.

Layouts and weights are not changed: those passes are for CPUs. Constants stay in the virtual
machine's bytecode, which copies each to the GPU once at the start.
"""

from __future__ import annotations

from typing import Any

from edgekit.compiler.phases import FUSE, LEGALIZE, LOWER, PLAN, SIMPLIFY, Phase


def _quantize(target: Any) -> list[Any]:
    from edgekit.compiler.passes.litert_arithmetic import LiteRtArithmetic
    from edgekit.compiler.schedules.rescaling import rescaled

    return [LiteRtArithmetic(rescaled)]


def _clamp(target: Any) -> list[Any]:
    from edgekit.compiler.passes.lower_index_checks import ClampIndices

    return [ClampIndices()]


def _name(target: Any) -> list[Any]:
    from edgekit.compiler.passes.plain_names import PlainNames

    return [PlainNames()]


def _schedule(target: Any) -> list[Any]:
    from tvm import s_tir
    from tvm.s_tir import dlight

    return [
        dlight.ApplyDefaultSchedule(
            dlight.gpu.Matmul(),
            dlight.gpu.GEMV(),
            dlight.gpu.Reduction(),
            dlight.gpu.GeneralReduction(),
            dlight.gpu.Fallback(),
        ),
        # Bind all remaining loops to threads: nothing else can run on the GPU.
        s_tir.transform.DefaultGPUSchedule(),
    ]


CUDA_PHASES: tuple[Phase, ...] = (
    Phase("quantize", "what is left of a quantised TFLite model computes in integers", _quantize),
    SIMPLIFY,
    Phase("name", "tensors are called what C takes", _name),
    Phase("indices", "indices are held inside of what they address", _clamp),
    LEGALIZE,
    FUSE,
    Phase("schedule", "each kernel's loops are threads of the GPU", _schedule),
    LOWER,
    PLAN,
)
