"""Float inputs and outputs that a quantised model only quantises become integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import relax

from edgekit.base.errors import ModelError
from edgekit.base.options import option
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.rewriting import is_call, with_main

Calls = list[tuple[Any, Any]]
"""Calls, and the variables that take their places."""
Specs = tuple[TensorSpec, ...]


def with_integer_ends(module: Any, inputs: Specs, outputs: Specs) -> tuple[Any, Specs, Specs]:
    """Return a module, its inputs and its outputs with integer ends; ModelError if none fits."""
    function = module["main"]
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    results = _results(function, bindings)
    replaced: Calls = []
    parameters, given = list(function.params), list(inputs)
    for place, (variable, spec) in enumerate(zip(function.params, inputs, strict=True)):
        readers = [b.value for b in bindings if _reads(b.value, variable)]
        found = [_quantization(value) for value in readers if is_call(value, "relax.quantize")]
        is_result = any(variable.same_as(value) for value in results)
        if is_result or not found or None in found or len(found) < len(readers):
            continue
        if found.count(found[0]) < len(found):
            continue
        dtype = str(readers[0].ty.dtype)
        parameters[place] = relax.Var(variable.name, relax.TensorType(spec.shape, dtype))
        replaced += [(value, parameters[place]) for value in readers]
        given[place] = replace(spec, dtype=dtype, quantization=found[0])
    made = list(outputs)
    for place, (value, spec) in enumerate(zip(results, outputs, strict=True)):
        variable, call = _origin(value, bindings)
        readers = [b for b in bindings if variable is not None and _reads(b.value, variable)]
        steps = _quantization(call) if is_call(call, "relax.dequantize") else None
        if steps is not None and all(_is_alias(b.value) for b in readers):
            replaced.append((call, call.args[0]))
            dtype = str(call.args[0].ty.dtype)
            made[place] = replace(spec, dtype=dtype, quantization=steps)
    if not replaced:
        raise ModelError(
            f"{option('ends', 'int8')} finds no float input that is only quantised, and no output "
            "that is dequantised at the end",
            hint=f"build it without {option('ends')}, or quantize the model first with "
            "`edgekit quantize`",
        )
    body = _Ends(module, replaced).visit_expr(function.body)
    module = with_main(module, parameters, body)
    return module, tuple(given), tuple(made)


@relax.expr_functor.mutator
class _Ends(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, replaced: Calls) -> None:
        super().__init__(module)
        self._replaced = replaced

    def visit_call_(self, call: Any) -> Any:
        for known, variable in self._replaced:
            if known.same_as(call):
                return self.visit_expr(variable)
        return super().visit_call_(call)


def _results(function: Any, bindings: Sequence[Any]) -> list[Any]:
    value = function.body.body
    _, origin = _origin(value, bindings)
    return list(origin.fields) if isinstance(origin, relax.Tuple) else [value]


def _origin(value: Any, bindings: Sequence[Any]) -> tuple[Any, Any]:
    """Return the variable that a value goes back to over plain copies, and what it is bound to."""
    variable = None
    while isinstance(value, relax.Var):
        bound = [b.value for b in bindings if b.var.same_as(value)]
        if not bound:
            break
        variable, value = value, bound[0]
    return variable, value


def _reads(value: Any, variable: Any) -> bool:
    return any(used.same_as(variable) for used in relax.analysis.free_vars(value))


def _is_alias(value: Any) -> bool:
    return isinstance(value, (relax.Var, relax.Tuple))


def _quantization(call: Any) -> Quantization | None:
    """Return the steps of a whole tensor; None if they differ along an axis, or are computed."""
    scale, zero = (constant_array(argument) for argument in call.args[1:3])
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    return Quantization((float(scale.reshape(-1)[0]),), (int(zero.reshape(-1)[0]),))
