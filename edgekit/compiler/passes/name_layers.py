"""Name the layers that each call computes, in a form that survives fusion.

TVM makes one function of equal loop nests, and forgets the names of what it fuses. So each call has
a function of its own while neighbours are grouped. Then the layers of a group become the name of
the variable that it computes, and equal functions are one again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from edgekit.base.node_names import joined, named_after
from edgekit.compiler.rewriting import is_call, rewriting

_LAYER = "edgekit.layer"
_VARIABLE = "edgekit.variable"


@relax.expr_functor.mutator
class _NameLayers(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._module = module
        self._variable = ""

    def visit_var_binding_(self, binding: Any) -> None:
        self._variable = str(binding.var.name)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        if not is_call(call, "relax.call_tir"):
            return call
        function = self._module[call.args[0]]
        layer = named_after(self._variable)
        own = function.with_attr({_LAYER: layer, _VARIABLE: self._variable})
        variable = self.builder_.add_func(own, str(call.args[0].name_hint))
        return relax.Call(call.op, [variable, *call.args[1:]], call.attrs, call.ty_args)


def name_layers() -> Any:
    """Return the pass that gives each call a function with the name of its layer."""
    return rewriting("NameLayers", _NameLayers)


def share_kernels() -> Any:
    """Return the pass that names the results of groups and merges equal functions."""
    return tvm.transform.module_pass(_shared, opt_level=0, name="edgekit.ShareKernels")


def _shared(module: Any, context: Any) -> Any:
    del context
    functions = dict(module.functions_items())
    kernels = {v: f for v, f in functions.items() if isinstance(f, tirx.PrimFunc)}
    groups = {v: f for v, f in functions.items() if _is_group(f)}
    layers = {variable: _layers_of(kernel) for variable, kernel in kernels.items()}
    for variable, group in groups.items():
        called = [layers[call] for call in _callees(group) if call in layers]
        layers[variable] = tuple(dict.fromkeys(layer for part in called for layer in part))
    kernels = {variable: _anonymous(kernel) for variable, kernel in kernels.items()}
    same = _merged(kernels, {})
    same = _merged(groups, same)
    fused = {
        variable: _rewritten(function, same, layers)
        for variable, function in functions.items()
        if variable not in kernels and (variable not in groups or same[variable].same_as(variable))
    }
    kept = {v: f for v, f in kernels.items() if same[v].same_as(v)}
    return tvm.IRModule({**kept, **fused}, attrs=module.attrs)


def _is_group(function: Any) -> bool:
    return isinstance(function, relax.Function) and "Primitive" in (function.attrs or {})


def _callees(function: Any) -> list[Any]:
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    return [value.args[0] for value in values if is_call(value, "relax.call_tir")]


def _layers_of(kernel: Any) -> tuple[str, ...]:
    layer = str((kernel.attrs or {}).get(_LAYER, ""))
    return (layer,) if layer else ()


def _anonymous(kernel: Any) -> Any:
    for name in (_LAYER, _VARIABLE):
        if name in (kernel.attrs or {}):
            kernel = kernel.without_attr(name)
    return kernel


def _merged(functions: dict[Any, Any], same: dict[Any, Any]) -> dict[Any, Any]:
    """Add each function's first equal one to `same`."""
    found: dict[int, list[tuple[Any, Any]]] = {}
    result = dict(same)
    for variable, function in functions.items():
        plain = _put(function, same) if same else function
        equals = found.setdefault(tvm_ffi.structural_hash(plain), [])
        for first, other in equals:
            if tvm_ffi.structural_equal(plain, other):
                result[variable] = first
                break
        else:
            result[variable] = variable
            equals.append((variable, plain))
    return result


def _put(node: Any, same: dict[Any, Any]) -> Any:
    return tvm_ffi.structural_map(
        node, [(tvm.ir.GlobalVar, lambda variable: same.get(variable, variable))]
    )


def _rewritten(function: Any, same: dict[Any, Any], layers: dict[Any, tuple[str, ...]]) -> Any:
    """Return the function with calls of shared functions, and names for their results."""
    if not isinstance(function, relax.Function):
        return function
    function = _put(function, same) if _is_group(function) else _named(function, layers)
    return _put(function, same)


def _named(function: Any, layers: dict[Any, tuple[str, ...]]) -> Any:
    fresh: dict[Any, Any] = {}
    for block in function.body.blocks:
        for number, binding in enumerate(block.bindings):
            value = binding.value
            if not isinstance(value, relax.Call):
                continue
            callee = value.args[0] if is_call(value, "relax.call_tir") else value.op
            found = layers.get(callee) if isinstance(callee, tvm.ir.GlobalVar) else None
            if found:
                kind: Callable[..., Any] = type(binding.var)
                fresh[binding.var] = kind(joined(found, number), binding.var.ty)
    return tvm_ffi.structural_map(
        function, [(relax.Var, lambda variable: fresh.get(variable, variable))]
    )
