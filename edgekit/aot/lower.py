"""The compiler for bare metal as one list of passes in named phases: read it from top to bottom.

It shares its first phases with compiler/pipeline.py, and ends where every operator is a fused loop
nest, or one of operators.py: nothing of TVM's runtime is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.aot.operators import Operator
from edgekit.aot.quantised.recognised import NotInteger
from edgekit.aot.quantised.rewrite import recognise
from edgekit.base.tvm_compat import load_tvm
from edgekit.compiler.phases import SIMPLIFY, Phase, apply_phase, guarded


@dataclass(frozen=True)
class Lowered:
    module: Any
    """A straight-line `main` of calls of PrimFuncs, operators by number, and reshapes."""
    operators: Mapping[int, Operator]
    operator_layers: Mapping[int, tuple[str, ...]]
    """The model's own names for the layers of each operator."""
    layers: Mapping[str, tuple[str, ...]]
    """The model's own names for the layers that each PrimFunc computes."""
    declined: tuple[NotInteger, ...] = ()
    """The groups of a quantised model that are computed in floats, and why."""


def _quantize(target: Any) -> list[Any]:
    from edgekit.compiler.passes.litert_arithmetic import LiteRtArithmetic

    return [LiteRtArithmetic()]


def _lay_out(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.compiler.passes.channels_last import ChannelsLast
    from edgekit.compiler.passes.fold_constants import FoldConstants
    from edgekit.compiler.passes.views import Views

    return [
        ChannelsLast(only_plain=True),
        FoldConstants(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        Views(),
        relax.transform.CanonicalizeBindings(),
    ]


def _legalize(target: Any) -> list[Any]:
    from edgekit.compiler.passes.legalize import legalizing

    return legalizing(target, ["relax.reshape"])


def _group(target: Any) -> list[Any]:
    from tvm import relax

    from edgekit.compiler.passes.name_layers import NameLayers

    return [NameLayers(), relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps()]


def _fuse(target: Any) -> list[Any]:
    from tvm import relax

    return [relax.transform.FuseTIR(), relax.transform.DeadCodeElimination()]


INTEGERS = Phase("quantize", "what is left of a quantised model computes in integers", _quantize)

GROUP = Phase("group", "neighbouring loop nests stand together", _group)

PHASES: tuple[Phase, ...] = (
    INTEGERS,
    SIMPLIFY,
    Phase("layout", "channels lie last, and what moves nothing is a reshape", _lay_out),
    Phase("legalize", "every operator is a loop nest", _legalize),
    GROUP,
    Phase("fuse", "neighbouring loop nests are one function", _fuse),
)


def lower(module: Any, dump: Callable[[str, Any], None] = lambda name, module: None) -> Lowered:
    """Lower a model's module to a list of steps. The operators of operators.py are taken out first,
    while constants are those of the model."""
    tvm = load_tvm()
    target = tvm.target.Target("c")
    layers: Mapping[str, tuple[str, ...]] = {}
    dump("imported", module)
    with target:
        recognised = guarded("recognising integers", lambda: recognise(module))
        module = recognised.module
        dump("recognised", module)
        for phase in PHASES:
            module = apply_phase(phase, module, target)
            dump(phase.name, module)
            if phase is GROUP:
                layers = _layers(module)
    return Lowered(module, recognised.operators, recognised.layers, layers, recognised.declined)


def _layers(module: Any) -> Mapping[str, tuple[str, ...]]:
    from edgekit.compiler.passes.name_layers import layers_of_groups

    return layers_of_groups(module)
