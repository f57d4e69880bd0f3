"""Lower a model to fused loop nests and operators of operators.py, without TVM's runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.aot.operators import Operator
from edgekit.aot.quantised.recognised import NotInteger
from edgekit.aot.quantised.rewrite import recognise
from edgekit.base.tvm_compat import load_tvm
from edgekit.compiler.phases import Dump, guarded, no_dump, run_phase


@dataclass(frozen=True)
class Lowered:
    module: Any
    """A straight-line `main` of calls of PrimFuncs, operators by number, and reshapes."""
    operators: Mapping[int, Operator]
    operator_layers: Mapping[int, tuple[str, ...]]
    """The model's own names for the layers of each operator."""
    declined: tuple[NotInteger, ...] = ()
    """The groups of a quantised model that are computed in floats, and why."""


def lower(module: Any, dump: Dump = no_dump) -> Lowered:
    """Lower a model's module to a list of steps. The operators of operators.py are taken out first,
    while constants are those of the model."""
    target = load_tvm().target.Target("c")
    from edgekit.compiler.pipeline import for_c

    dump("imported", module)
    with target:
        recognised = guarded("recognising integers", lambda: recognise(module))
        module = recognised.module
        dump("recognised", module)
        for phase in for_c(target):
            module = run_phase(phase, module)
            dump(phase.name, module)
    return Lowered(module, recognised.operators, recognised.layers, recognised.declined)
