"""The compiler, told as one list of passes in named phases: read it top to bottom.

TVM's own default pipeline for a CPU target is not used: called without a pipeline, `tvm.compile`
fuses nothing at all on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.board import Target
from edgekit.cross.weights import Weight
from edgekit.errors import BuildError, EdgekitError
from edgekit.events import SILENT, Events
from edgekit.files import storage_errors, write_atomically
from edgekit.model import Model
from edgekit.schedules.choices import NO_CHOICES, Choices
from edgekit.tvm_compat import load_tvm
from edgekit.wording import size

if TYPE_CHECKING:
    from edgekit.backends.base import Decision, Region
    from edgekit.backends.partition import Partition, Selection


@dataclass(frozen=True)
class Phase:
    """Passes that together reach a form worth looking at. `--dump-ir` writes it down."""

    name: str
    reaches: str
    passes: Callable[..., list[Any]]
    """From the TVM target to the passes."""


def _tidy(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.passes.fold_constants import FoldConstants

    return [relax.transform.CanonicalizeBindings(), FoldConstants(keep=_KEPT_FOR_BACKENDS)]


def _channels_first(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.passes.channels_first import ChannelsFirst

    return [
        relax.transform.CanonicalizeBindings(),
        ChannelsFirst(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]


def _fold(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.passes.fold_batch_norm import FoldBatchNorm
    from edgekit.passes.fold_constants import FoldConstants

    return [
        FoldBatchNorm(),
        relax.transform.DecomposeOpsForInference(),
        FoldConstants(keep=_KEPT_FOR_BACKENDS),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]


def _quantize(target: Any) -> list[Any]:
    from edgekit.passes.integer_products import IntegerProducts
    from edgekit.passes.litert_arithmetic import LiteRtArithmetic
    from edgekit.schedules.machine import machine_of
    from edgekit.schedules.rescaling import rescaled

    products = [IntegerProducts()] if machine_of(target).dot is not None else []
    return [LiteRtArithmetic(rescaled), *products]


def _simplify(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.passes.fold_batch_norm import FoldBatchNorm
    from edgekit.passes.fold_constants import FoldConstants

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

    from edgekit.passes.as_images import AsImages
    from edgekit.passes.channels_last import ChannelsLast
    from edgekit.passes.fold_constants import FoldConstants
    from edgekit.passes.pack_int8 import PackInt8
    from edgekit.passes.pack_pairs import PackPairs
    from edgekit.passes.pack_weights import PackWeights
    from edgekit.schedules.machine import machine_of

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
    from edgekit.passes.legalize import legalizing

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
    from edgekit.schedules.apply import ScheduleKernels
    from edgekit.schedules.machine import machine_of
    from edgekit.schedules.vector_math import use_vector_math

    use_vector_math()
    return [ScheduleKernels(machine_of(target), choices)]


def _lower(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.passes.lower_index_checks import LowerIndexChecks

    return [
        relax.transform.RewriteDataflowReshape(),
        LowerIndexChecks(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]


def _plan(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.passes.plan_memory import PlanMemory

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
"""What a backend that computes in integers looks for."""

TIDY = Phase("tidy", "what depends on constants alone is one", _tidy)

CHANNELS_FIRST = Phase(
    "channels first", "images lie as the libraries of backends want them", _channels_first
)

FOLD = Phase("fold", "batch norm is part of the convolution before it", _fold)

SIMPLIFY = Phase("simplify", "batch norm and constants folded, dead code gone", _simplify)

FUSE = Phase("fuse", "neighbouring loop nests are one function", _fuse)

LAYOUT = Phase("layout", "channels lie last, and weights as the kernels read them", _lay_out)

SCHEDULE = Phase("schedule", "each kernel's loops are in the order that suits the CPU", _schedule)

LEGALIZE = Phase("legalize", "every operator is a loop nest", _legalize)

LOWER = Phase("lower", "calls write into buffers", _lower)

PLAN = Phase("plan", "buffers are planned and freed; the VM's own form", _plan)

PHASES: tuple[Phase, ...] = (
    Phase("quantize", "what is left of a quantised TFLite model computes in integers", _quantize),
    SIMPLIFY,
    LAYOUT,
    LEGALIZE,
    FUSE,
    SCHEDULE,
    LOWER,
    PLAN,
)
"""For CPUs. Where a GPU runs what no library does, it is those of cuda/phases.py."""


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of activations. Inputs and outputs are the caller's: no part of `planned`."""

    planned: int
    least: int | None
    """Alive at once, inputs and outputs included; None where only running the model tells."""

    @property
    def words(self) -> str:
        planned = f"{size(self.planned)} for activations"
        return planned if self.least is None else f"{planned}, {size(self.least)} alive at once"


@dataclass(frozen=True)
class Compiled:
    """What TVM hands back, before the board's own linker has seen it."""

    executable: Any
    kernels: tuple[str, ...]
    """The fused functions, in the order they were made."""
    rules: tuple[tuple[str, str], ...]
    """Of each kernel that has a schedule: its name and the rule that gave it."""
    choices: tuple[tuple[str, str], ...]
    """Of each kernel for which something better than the rule's own choice was measured: its name
    and that, in words."""
    memory: MemoryPlan
    weights: tuple[Weight, ...]
    """What the executable lacks: the library that it becomes must have them."""
    regions: tuple[Region, ...]
    """What backends run: the library must have these too."""
    decisions: tuple[Decision, ...]
    """Who runs each operator; empty where no backend was asked."""
    checks_indices: bool = False
    """Whether the library must have the function of cross/index_errors.py."""


def compile_model(
    model: Model,
    target: Target,
    *,
    offload: Selection | None = None,
    regions: tuple[Region, ...] = (),
    weights_apart: bool = False,
    choices: Choices = NO_CHOICES,
    dump_ir: Path | None = None,
    events: Events = SILENT,
) -> Compiled:
    """Run every phase for `target`, then TVM's code generator.

    With `weights_apart` the executable runs only once it is linked with its weights, and with
    `offload` only with the regions of its backends. `regions` are those that the module calls
    already.
    """
    tvm = load_tvm()
    from edgekit.passes.called_functions import check_functions
    from edgekit.passes.finish import executable_of
    from edgekit.passes.lower_index_checks import link_index_errors
    from edgekit.passes.map_weights import map_weights
    from edgekit.passes.plan_memory import planned_bytes
    from edgekit.schedules.apply import CHOICE_ATTRIBUTE, RULE_ATTRIBUTE

    tvm_target = tvm.target.Target(target.as_json())
    dump = dumper(dump_ir)
    dump("imported", model.module)
    module = model.module
    decisions: tuple[Decision, ...] = ()
    if offload is not None:
        with events.stage("partition") as stage:
            partition = partition_model(model, offload, dump)
            regions = partition.regions
            if regions:
                module = partition.module  # else as it came, not as libraries would have it
            decisions = partition.decisions
            stage.result = _coverage(decisions, len(regions))
    least: int | None = None
    phases, kernels_compiled = _way_for(target, choices)
    with events.stage("compile", total=len(phases) + 1) as stage, tvm_target:
        for phase in phases:
            module = apply_phase(phase, module, tvm_target)
            dump(phase.name, module)
            if phase is FUSE:
                least = _least_memory(module)
            stage.advance(detail=phase.name)
        weights, checks_indices = (), False
        if weights_apart and target.gpu is None:
            module, weights = guarded("mapping the weights", partial(map_weights, module))
            module, checks_indices = link_index_errors(module)
        functions = {
            variable.name_hint: function
            for variable, function in module.functions_items()
            if isinstance(function, tvm.tirx.PrimFunc)
        }
        kernels = tuple(functions)
        with kernels_compiled:
            executable = guarded("code generation", lambda: executable_of(module, tvm_target))
        check_functions(module, executable, (one.symbol for one in regions))
        stage.advance(detail="code generation")
        memory = MemoryPlan(planned_bytes(module), least)
        stage.result = f"{len(kernels)} kernels, {memory.words}"
    return Compiled(
        executable,
        kernels,
        _said_of(functions, RULE_ATTRIBUTE),
        _said_of(functions, CHOICE_ATTRIBUTE),
        memory,
        weights,
        regions,
        decisions,
        checks_indices,
    )


def _way_for(
    target: Target, choices: Choices
) -> tuple[tuple[Phase, ...], AbstractContextManager[None]]:
    """The passes, and what has to be there while code is generated."""
    if target.gpu is None:
        return phases_with(choices), nullcontext()
    from edgekit.cuda.kernels import compiling_kernels
    from edgekit.cuda.phases import CUDA_PHASES

    return CUDA_PHASES, compiling_kernels(target.gpu)


def _said_of(functions: Mapping[str, Any], attribute: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, str(function.attrs[attribute]))
        for name, function in functions.items()
        if function.attrs is not None and attribute in function.attrs
    )


def partition_model(
    model: Model, offload: Selection, dump: Callable[[str, Any], None] = lambda name, module: None
) -> Partition:
    """Decide who runs what: backends that look for batch norm first, then all others."""
    from edgekit.backends.partition import check_forced, partition

    load_tvm()
    early, late = offload.split()
    module = apply_phase(CHANNELS_FIRST, apply_phase(TIDY, model.module, None), None)
    first: Partition | None = None
    if early.backends:
        first = partition(module, early)
        module = first.module
    module = apply_phase(FOLD, module, None)
    dump("folded", module)
    last = partition(module, late)
    dump("partitioned", last.module)
    whole = last if first is None else _both(first, last)
    check_forced(offload.force, whole.decisions)
    return whole


def _both(early: Partition, late: Partition) -> Partition:
    """What the first left undecided, the second has decided."""
    from edgekit.backends.partition import NO_RULE

    decided = {v: d for v, d in early.decision_of.items() if d.backend is not None}
    declined = {
        d.node: d.reason
        for d in early.decisions
        if d.backend is None and d.node and d.reason != NO_RULE
    }
    told = {
        variable: replace(decision, reason=declined[decision.node])
        if decision.reason == NO_RULE and decision.node in declined
        else decision
        for variable, decision in late.decision_of.items()
    }
    decision_of = {**decided, **told}
    return replace(
        late,
        regions=(*early.regions, *late.regions),
        decisions=tuple(decision_of.values()),
        candidates=(*early.candidates, *late.candidates),
        decision_of=decision_of,
    )


def _coverage(decisions: Sequence[Decision], regions: int) -> str:
    offloaded = [decision for decision in decisions if decision.backend is not None]
    return f"{len(offloaded)} of {len(decisions)} operators in {regions} regions"


def simplified(model: Model) -> Any:
    """The Relax module after the first phase: what inspection counts on."""
    load_tvm()
    return apply_phase(SIMPLIFY, model.module, None)


def _least_memory(module: Any) -> int | None:
    from edgekit.liveness import peak_activation_bytes
    from edgekit.macs import ShapeDependsOnDataError

    try:
        return peak_activation_bytes(module)
    except ShapeDependsOnDataError:
        return None


def phases_with(choices: Choices) -> tuple[Phase, ...]:
    """With what was measured in place of the rules' own choices."""
    return tuple(
        replace(phase, passes=partial(phase.passes, choices=choices))
        if phase in (LAYOUT, SCHEDULE)
        else phase
        for phase in PHASES
    )


def fused(module: Any, target: Any = None) -> Any:
    """A module after the phases that make its kernels: for no CPU in particular, or for one."""
    target = target or load_tvm().target.Target("llvm")
    with target:
        for phase in PHASES[: PHASES.index(FUSE) + 1]:
            module = apply_phase(phase, module, target)
    return module


def fused_for(model: Model, target: Any, offload: Selection | None = None) -> Any:
    """A model as its kernels are just before they get their schedules."""
    module = model.module
    if offload is not None:
        partition = partition_model(model, offload)
        module = partition.module if partition.regions else module
    return fused(module, target)


def generated(module: Any, target: Any) -> Any:
    """The executable of scheduled kernels and the calls of them."""
    from edgekit.passes.finish import executable_of

    with target:
        for phase in PHASES[PHASES.index(SCHEDULE) + 1 :]:
            module = apply_phase(phase, module, target)
        return guarded("code generation", lambda: executable_of(module, target))


def apply_phase(phase: Phase, module: Any, target: Any) -> Any:
    from tvm.ir.transform import Sequential

    return guarded(f"phase {phase.name}", lambda: Sequential(phase.passes(target))(module))


def guarded(what: str, work: Callable[[], Any]) -> Any:
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


def dumper(folder: Path | None) -> Callable[[str, Any], None]:
    if folder is None:
        return lambda name, module: None
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
