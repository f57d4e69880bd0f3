"""The named phases that compilers consist of, and how one is run.

`compiler/pipeline.py` lists those for CPUs, `compiler/cuda/phases.py` those for GPUs and
`aot/lower.py` those for C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.base.errors import BuildError, EdgekitError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices


@dataclass(frozen=True)
class Phase:
    """Passes that together reach a form worth looking at, which `--dump-ir` writes."""

    name: str
    reaches: str
    passes: Callable[..., list[Any]]
    """A function from the TVM target to the passes."""


def _tidy(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.compiler.passes.fold_constants import FoldConstants

    return [relax.transform.CanonicalizeBindings(), FoldConstants(keep=_KEPT_FOR_BACKENDS)]


def _channels_first(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.compiler.passes.channels_first import ChannelsFirst

    return [
        relax.transform.CanonicalizeBindings(),
        ChannelsFirst(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]


def _fold(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.compiler.passes.fold_batch_norm import FoldBatchNorm
    from edgekit.compiler.passes.fold_constants import FoldConstants

    return [
        FoldBatchNorm(),
        relax.transform.DecomposeOpsForInference(),
        FoldConstants(keep=_KEPT_FOR_BACKENDS),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]


def _quantize(target: Any) -> list[Any]:
    from edgekit.compiler.passes.integer_products import IntegerProducts
    from edgekit.compiler.passes.litert_arithmetic import LiteRtArithmetic
    from edgekit.compiler.schedules.machine import machine_of
    from edgekit.compiler.schedules.rescaling import rescaled

    products = [IntegerProducts()] if machine_of(target).dot is not None else []
    return [LiteRtArithmetic(rescaled), *products]


def _simplify(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.compiler.passes.fold_batch_norm import FoldBatchNorm
    from edgekit.compiler.passes.fold_constants import FoldConstants

    return [
        relax.transform.CanonicalizeBindings(),
        FoldConstants(),
        FoldBatchNorm(),
        relax.transform.DecomposeOpsForInference(),
        FoldConstants(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]


def _lay_out(target: Any, choices: Choices = NO_CHOICES) -> list[Any]:
    from tvm import relax

    from edgekit.compiler.passes.as_images import AsImages
    from edgekit.compiler.passes.channels_last import ChannelsLast
    from edgekit.compiler.passes.fold_constants import FoldConstants
    from edgekit.compiler.passes.pack_int8 import PackInt8
    from edgekit.compiler.passes.pack_pairs import PackPairs
    from edgekit.compiler.passes.pack_weights import PackWeights
    from edgekit.compiler.schedules.machine import machine_of

    machine = machine_of(target)
    return [
        AsImages(),
        ChannelsLast(),
        FoldConstants(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        PackWeights(machine, choices),
        PackInt8(machine),
        PackPairs(machine),
        relax.transform.DeadCodeElimination(),
    ]


def _legalize(target: Any) -> list[Any]:
    from edgekit.compiler.passes.legalize import legalizing

    return legalizing(target)


def _fuse(target: Any) -> list[Any]:
    from tvm import relax

    return [
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]


def _schedule(target: Any, choices: Choices = NO_CHOICES) -> list[Any]:
    from edgekit.compiler.schedules.apply import ScheduleKernels
    from edgekit.compiler.schedules.machine import machine_of
    from edgekit.compiler.schedules.vector_math import use_vector_math

    use_vector_math()
    return [ScheduleKernels(machine_of(target), choices)]


def _lower(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.compiler.passes.lower_index_checks import LowerIndexChecks

    return [
        relax.transform.RewriteDataflowReshape(),
        LowerIndexChecks(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]


def _plan(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.compiler.passes.plan_memory import PlanMemory

    return [
        PlanMemory(),
        relax.transform.LowerAllocTensor(),
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]


_KEPT_FOR_BACKENDS = frozenset({"relax.dequantize"})
"""Operators that a backend that computes in integers looks for."""

TIDY = Phase("tidy", "what depends on constants alone is one", _tidy)

CHANNELS_FIRST = Phase(
    "channels first", "images lie as the libraries of backends want them", _channels_first
)

FOLD = Phase("fold", "batch norm is part of the convolution before it", _fold)

QUANTIZE = Phase(
    "quantize", "what is left of a quantised TFLite model computes in integers", _quantize
)

SIMPLIFY = Phase("simplify", "batch norm and constants folded, dead code gone", _simplify)

FUSE = Phase("fuse", "neighbouring loop nests are one function", _fuse)

LAYOUT = Phase("layout", "channels lie last, and weights as the kernels read them", _lay_out)

SCHEDULE = Phase("schedule", "each kernel's loops are in the order that suits the CPU", _schedule)

LEGALIZE = Phase("legalize", "every operator is a loop nest", _legalize)

LOWER = Phase("lower", "calls write into buffers", _lower)

PLAN = Phase("plan", "buffers are planned and freed; the VM's own form", _plan)


def apply_phase(phase: Phase, module: Any, target: Any) -> Any:
    """Run the passes of a phase; BuildError where TVM fails."""
    from tvm.ir.transform import Sequential

    return guarded(f"phase {phase.name}", lambda: Sequential(phase.passes(target))(module))


def guarded(what: str, work: Callable[[], Any]) -> Any:
    """Run a function of TVM; raise BuildError where it fails."""
    try:
        return work()
    except EdgekitError:
        raise
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise BuildError(
            f"TVM failed in {what}: {lines[-1] if lines else type(error).__name__}",
            hint="run again with --dump-ir DIR to see the module before it, --debug for more",
            details=tuple(lines[-8:]),
        ) from error


Dump = Callable[[str, Any], None]
"""A function that writes a module to a file named after the phase it has reached."""


def _no_dump(name: str, module: Any) -> None:
    """Write nothing."""


NO_DUMP: Dump = _no_dump


def dumper(folder: Path | None) -> Dump:
    """Return a function that writes numbered modules into a folder, or nothing without one."""
    if folder is None:
        return NO_DUMP
    target_folder = folder
    written: list[str] = []
    with storage_errors("write the IR", target_folder):
        target_folder.mkdir(parents=True, exist_ok=True)

    def dump(name: str, module: Any) -> None:
        file = target_folder / f"{len(written)}-{name}.py"
        with storage_errors("write the IR", file):
            write_atomically(file, module.script(show_meta=False))
        written.append(name)

    return dump
