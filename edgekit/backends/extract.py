"""Extract a region into a module of its own: as TVM operators, or as the call into a library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from edgekit.backends.partition import Candidate


def as_operators(candidate: Candidate) -> Any:
    """Return the region as TVM would compile it."""
    claim, graph = candidate.claim, candidate.graph
    parameters = _parameters(claim.inputs)
    given = [
        relax.VarBinding(variable, parameter)
        for variable, parameter in zip(claim.inputs, parameters, strict=True)
    ]
    computed = [
        relax.VarBinding(graph.nodes[index].variable, graph.nodes[index].value)
        for index in sorted(claim.nodes)
    ]
    return _module(parameters, [*given, *computed], claim.outputs)


def as_call(candidate: Candidate) -> Any:
    """Return a module that calls the region's function in the library."""
    claim = candidate.claim
    parameters = _parameters(claim.inputs)
    types = [variable.ty for variable in claim.outputs]
    call = relax.call_dps_packed(claim.region.symbol, relax.Tuple(parameters), out_ty=types)
    if len(types) == 1:
        result = relax.DataflowVar("result", types[0])
        return _module(parameters, [relax.VarBinding(result, call)], [result])
    whole = relax.DataflowVar("results", relax.TupleType(types))
    items = [relax.DataflowVar(f"result{index}", kind) for index, kind in enumerate(types)]
    taken = [
        relax.VarBinding(item, relax.TupleGetItem(whole, index)) for index, item in enumerate(items)
    ]
    return _module(parameters, [relax.VarBinding(whole, call), *taken], items)


def _parameters(variables: Sequence[Any]) -> list[Any]:
    return [relax.Var(f"input{index}", v.ty) for index, v in enumerate(variables)]


def _module(parameters: Sequence[Any], bindings: Sequence[Any], outputs: Sequence[Any]) -> Any:
    results = [relax.Var(f"output{index}", output.ty) for index, output in enumerate(outputs)]
    handed_out = [
        relax.VarBinding(result, output) for result, output in zip(results, outputs, strict=True)
    ]
    block = relax.DataflowBlock([*bindings, *handed_out])
    alone = len(results) == 1
    body = results[0] if alone else relax.Tuple(results)
    kind = results[0].ty if alone else relax.TupleType([result.ty for result in results])
    function = relax.Function(list(parameters), relax.SeqExpr([block], body), kind)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
