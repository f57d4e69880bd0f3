"""Annotate each loop nest with the layer that it computes, in a form that survives fusion.

TVM makes one function of equal loop nests, and forgets the names of what it fuses.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from edgekit.base.node_names import named_after
from edgekit.compiler.rewriting import is_call, rewriting

LAYER_ATTRIBUTE = "edgekit.layer"


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
        layer = named_after(self._variable) or str(call.args[0].name_hint)
        own = function.with_attr({LAYER_ATTRIBUTE: layer, "edgekit.variable": self._variable})
        variable = self.builder_.add_func(own, str(call.args[0].name_hint))
        return relax.Call(call.op, [variable, *call.args[1:]], call.attrs, call.ty_args)


def name_layers() -> Any:
    return rewriting("NameLayers", _NameLayers)


def layers_of_groups(module: Any) -> dict[str, tuple[str, ...]]:
    """Return the layers that each function computes, in their order, after FuseOps."""
    found: dict[str, tuple[str, ...]] = {}
    for variable, function in module.functions_items():
        name = str(variable.name_hint)
        if isinstance(function, tvm.tirx.PrimFunc):
            found[name] = (_layer_of(function),)
        elif name != "main":
            calls = [binding.value for block in function.body.blocks for binding in block.bindings]
            layers = [
                _layer_of(module[call.args[0]]) for call in calls if is_call(call, "relax.call_tir")
            ]
            found[name] = tuple(dict.fromkeys(layers))
    return found


def _layer_of(function: Any) -> str:
    attributes = function.attrs
    has = attributes is not None and LAYER_ATTRIBUTE in attributes
    return str(attributes[LAYER_ATTRIBUTE]) if has else ""
