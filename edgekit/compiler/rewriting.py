"""Passes from rewriters of single functions, and questions that passes ask of Relax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of


def rewriting(
    name: str,
    rewriter: Callable[[Any], Any],
    *,
    unless: Callable[[Any], bool] = lambda module: False,
) -> Any:
    """Return a pass over all Relax functions; `rewriter` makes TVM's mutator of a module. Modules
    for which `unless` holds are unchanged."""

    def transform(module: Any, context: Any) -> Any:
        del context
        if unless(module):
            return module
        mutator = rewriter(module)
        for variable, function in list(module.functions_items()):
            if isinstance(function, relax.Function):
                mutator.builder_.update_func(variable, mutator.visit_expr(function))
        return mutator.builder_.get()

    return module_pass(name, transform)


def nodes_in(tree: Any, kinds: Any) -> list[Any]:
    """Return the nodes of a kind, or of several, in an expression or a statement."""
    found: list[Any] = []
    tvm_ffi.structural_walk(tree, (kinds, found.append))
    return found


def resolved(expression: Any, values: Mapping[Any, Any]) -> Any:
    """Return the expression behind variables, by the values that are bound to them."""
    while isinstance(expression, relax.Var) and expression in values:
        expression = values[expression]
    return expression


def on_kernels(name: str, rewrite: Callable[[Any], Any]) -> Any:
    """Return a pass that replaces each kernel by `rewrite(kernel)`."""

    def transform(module: Any, context: Any) -> Any:
        del context
        for variable, function in list(module.functions_items()):
            if isinstance(function, tirx.PrimFunc):
                module.update_func(variable, rewrite(function))
        return module

    return module_pass(name, transform)


def on_bodies(name: str, rewrite: Callable[[Any], Any]) -> Any:
    """Return a pass that replaces the body of each kernel by `rewrite(body)`."""
    return on_kernels(name, lambda kernel: kernel.with_body(rewrite(kernel.body)))


def module_pass(name: str, transform: Callable[[Any, Any], Any]) -> Any:
    return tvm.transform.module_pass(transform, opt_level=0, name=f"edgekit.{name}")


def with_main(module: Any, parameters: list[Any], body: Any, returned: Any = None) -> Any:
    """Return the module with other parameters and another body of `main`, without dead code.

    `returned` is the type of a body that is not normalised.
    """
    before = module["main"]
    whole = relax.Function(parameters, body, returned, before.is_pure, before.attrs)
    module.update_func(module.get_global_var("main"), whole)
    for transform in (
        relax.transform.Normalize(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(["main"]),
    ):
        module = transform(module)
    return module


def operator_of(expression: Any) -> str:
    """Return the operator that an expression calls; empty if it calls none."""
    operator = getattr(expression, "op", None)
    return str(operator.name) if isinstance(operator, tvm.ir.Op) else ""


def is_call(expression: Any, *names: str) -> bool:
    return operator_of(expression) in names


def has_known_shape(expression: Any) -> bool:
    """Return whether an expression is one tensor whose shape is known before it runs."""
    if not isinstance(expression.ty, relax.TensorType):
        return False
    try:
        shape_of(expression)
    except ShapeDependsOnDataError:
        return False
    return True


def integers(values: Any) -> list[int]:
    return [int(value) for value in values]
