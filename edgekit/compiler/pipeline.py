"""The compiler on one page: each list below is a way through it, in named phases.

A phase has a name, which `--dump-ir` and errors use, the reason why it is there, and its passes.
TVM's default pipeline is not used: called without a pipeline, `tvm.compile` fuses nothing on a CPU.
Call `load_tvm` before the first import of this module.
"""

from __future__ import annotations

from typing import Any

from tvm.relax import backend, transform

from edgekit.compiler.gpu.schedules import schedule_for_gpu
from edgekit.compiler.passes.as_images import as_images
from edgekit.compiler.passes.channel_orders import channels_first, channels_last
from edgekit.compiler.passes.defined_arithmetic import one_division_a_kernel
from edgekit.compiler.passes.fold_batch_norm import fold_batch_norm
from edgekit.compiler.passes.fold_constants import fold_constants
from edgekit.compiler.passes.integer_products import integer_products
from edgekit.compiler.passes.keep_zeros import keep_zeros
from edgekit.compiler.passes.litert_arithmetic import litert_arithmetic
from edgekit.compiler.passes.loop_nests import loop_nests
from edgekit.compiler.passes.loops import constants_into_loops
from edgekit.compiler.passes.lower_index_checks import lower_index_checks
from edgekit.compiler.passes.name_layers import name_layers, share_kernels
from edgekit.compiler.passes.pack_int8 import pack_int8
from edgekit.compiler.passes.pack_pairs import pack_pairs
from edgekit.compiler.passes.pack_resizes import pack_resizes
from edgekit.compiler.passes.pack_weights import pack_weights
from edgekit.compiler.passes.plain_names import plain_names
from edgekit.compiler.passes.plan_memory import plan_memory
from edgekit.compiler.passes.sorting import sort_in_loops
from edgekit.compiler.passes.views import views
from edgekit.compiler.phases import Phase
from edgekit.compiler.schedules.apply import schedule_kernels
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.compiler.schedules.machine import machine_of
from edgekit.compiler.schedules.rescaling import rescaled
from edgekit.profiles.gpu import GpuLimits

# What every list has.

SIMPLIFY = Phase(
    "simplify",
    "batch norm and constants are folded, and dead code is gone",
    [
        transform.CanonicalizeBindings(),
        fold_constants(),
        constants_into_loops(),
        fold_batch_norm(),
        transform.DecomposeOpsForInference(),
        fold_constants(),
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(),
    ],
)
LOWER = Phase(
    "lower",
    "calls write into buffers",
    [
        transform.RewriteDataflowReshape(),
        lower_index_checks(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    ],
)
PLAN = Phase(
    "plan",
    "buffers are planned and freed, in the form of TVM's virtual machine",
    [
        plan_memory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ],
)
FUSE = Phase(
    "fuse",
    "neighbouring loop nests are one function, and calls have the names of their layers",
    [
        name_layers(),
        transform.AnnotateTIROpPattern(),
        one_division_a_kernel(),
        transform.FuseOps(),
        share_kernels(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
    ],
)


def legalize(*kept: str) -> Phase:
    """Return the phase; operators in `kept` stay operators."""
    return Phase(
        "legalize",
        "every operator is a loop nest that computes what other runtimes compute",
        [
            keep_zeros(),
            sort_in_loops(),
            backend.DispatchSampling(),
            backend.DispatchSortScan(),
            transform.LegalizeOps(loop_nests(), list(kept)),
        ],
    )


def quantize(*passes: Any) -> Phase:
    why = "what libraries leave of a quantised model computes in integers"
    return Phase("quantize", why, [*passes, transform.DeadCodeElimination()])


# The lists.


def for_libraries(kept: frozenset[str]) -> tuple[Phase, Phase, Phase]:
    """Return the phases before operators are offered to the libraries of backends: offers are made
    after the second and the third. `kept` are operators that backends look for."""
    return (
        Phase(
            "tidy",
            "what depends on constants alone is one",
            [
                transform.CanonicalizeBindings(),
                fold_constants(keep=kept),
                constants_into_loops(),
                fold_constants(keep=kept),
            ],
        ),
        Phase(
            "channels first",
            "images lie as libraries want them",
            [
                transform.CanonicalizeBindings(),
                channels_first(),
                transform.CanonicalizeBindings(),
                transform.DeadCodeElimination(),
            ],
        ),
        Phase(
            "fold",
            "batch norm is part of the convolution before it",
            [
                fold_batch_norm(),
                transform.DecomposeOpsForInference(),
                fold_constants(keep=kept),
                transform.CanonicalizeBindings(),
                transform.DeadCodeElimination(),
            ],
        ),
    )


def for_cpu(target: Any, choices: Choices = NO_CHOICES) -> tuple[Phase, ...]:
    """Return the phases for a CPU; measured `choices` replace the rules' own."""
    machine = machine_of(target)
    dot = machine.dot
    return (
        quantize(litert_arithmetic(rescaled), *([integer_products()] if dot else [])),
        SIMPLIFY,
        Phase(
            "layout",
            "channels lie last, and weights as the kernels read them",
            [
                as_images(),
                channels_last(),
                fold_constants(),
                transform.CanonicalizeBindings(),
                transform.DeadCodeElimination(),
                pack_weights(machine, choices),
                *([pack_int8(machine, dot)] if dot else []),
                pack_pairs(machine),
                pack_resizes(),
                transform.DeadCodeElimination(),
            ],
        ),
        legalize(),
        FUSE,
        Phase(
            "schedule",
            "each kernel's loops are in the order that suits the CPU",
            [schedule_kernels(machine, choices)],
        ),
    )


def for_gpu(target: Any, limits: GpuLimits) -> tuple[Phase, ...]:
    """Return the phases for a GPU with OpenCL or CUDA. `target` is its CPU, for which every kernel
    can be scheduled as well: what the GPU can't do stays there."""
    return (
        quantize(litert_arithmetic(rescaled)),
        SIMPLIFY,
        Phase("name", "tensors have names that C accepts", [plain_names()]),
        legalize(),
        FUSE,
        Phase(
            "schedule",
            "each kernel's loops are threads of the GPU",
            [schedule_for_gpu(limits, machine_of(target), target)],
        ),
    )


FOR_MACHINE = LOWER, PLAN
"""The phases after a schedule, for TVM's virtual machine."""

FOR_PROGRAM = (
    Phase(
        "views",
        "what moves nothing is a view of the same memory",
        [transform.RewriteDataflowReshape(), transform.DeadCodeElimination()],
    ),
)
"""The phases after a CPU's schedule, for a program without a runtime."""


def for_c(target: Any) -> tuple[Phase, ...]:
    """Return the phases for programs in C, which end where every operator is a fused loop nest:
    nothing of TVM's runtime is left."""
    return (
        quantize(litert_arithmetic()),
        SIMPLIFY,
        Phase(
            "layout",
            "channels lie last, and what moves nothing is a reshape",
            [
                channels_last(only_plain=True),
                fold_constants(),
                transform.CanonicalizeBindings(),
                transform.DeadCodeElimination(),
                views(),
                transform.CanonicalizeBindings(),
            ],
        ),
        legalize("relax.reshape"),
        FUSE,
    )
