"""Lower index checks to kernels of a library, which raise."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from edgekit.compiler.passes.indices import IndexRule, read_rule, rule_of
from edgekit.compiler.rewriting import rewriting
from edgekit.cross.library_code import INDEX_ERROR

_RULE = "edgekit.index_rule"
"""The attribute that holds the rule of a kernel that raises."""


def lower_index_checks() -> Any:
    """Return the pass that turns every check into a loop nest for a CPU. Its kernel clamps too, so
    that no memory outside is touched whatever happens to the error."""
    tvm_ffi.register_global_func(INDEX_ERROR, _raise, override=True)
    return rewriting("LowerIndexChecks", _Lowering)


def link_index_errors(module: Any) -> tuple[Any, bool]:
    """Make kernels call the error function of their own library (cross/library_code.py), not that
    of this process; return also whether any kernel does."""
    functions = dict(module.functions_items())
    found = {
        variable: function
        for variable, function in functions.items()
        if isinstance(function, tirx.PrimFunc) and _RULE in (function.attrs or {})
    }
    for variable, function in found.items():
        rule = read_rule(str(function.attrs[_RULE]))
        assert rule is not None
        given, safe = (parameter.ty for parameter in function.params)
        linked = _raising(given, rule, str(safe.dtype), linked=True)
        functions[variable] = linked.with_attr("global_symbol", variable.name_hint)
    return tvm.IRModule(functions, attrs=module.attrs) if found else module, bool(found)


def _raise(name: str, value: int, lowest: int, highest: int) -> None:
    raise IndexError(IndexRule(name, (highest + 1,), lowest < 0).outside(value, highest + 1))


@relax.expr_functor.mutator
class _Lowering(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        rule = rule_of(call)
        if rule is None:
            return self.visit_expr_post_order(call)
        indices = self.visit_expr(call.args[1].fields[0])
        dtype = str(call.ty.dtype)
        name = self.builder_.add_func(_raising(indices.ty, rule, dtype), "check_indices")
        return relax.call_tir(name, [indices], out_ty=call.ty)


def _safe(value: Any, rule: IndexRule, extent: int, dtype: str) -> Any:
    zero, last = tirx.const(0, dtype), tirx.const(extent - 1, dtype)
    if rule.counts_from_end:
        value = tirx.Select(value < zero, value + tirx.const(extent, dtype), value)
    return tirx.max(tirx.min(value, last), zero)


def _raising(kind: Any, rule: IndexRule, dtype: str, linked: bool = False) -> Any:
    """Return the clamped indices and whether one is outside, then raise for the first of those."""
    shape = [int(extent) for extent in kind.shape]
    with IRBuilder() as builder, script.prim_func():
        script.func_name("check_indices")
        script.func_attr({"tirx.noalias": True, "op_pattern": 8, _RULE: rule.symbol})
        given = script.arg("given", script.buffer(shape, str(kind.dtype)))
        safe = script.arg("safe", script.buffer(shape, dtype))
        wrong = script.alloc_buffer((1,), "int32", scope="local")
        script.buffer_store(wrong, tirx.const(0, "int32"), [0])
        _walk(shape, rule, lambda at, extent: _check(given, safe, wrong, at, rule, extent))
        with script.If(wrong[0] != 0), script.Then():
            _walk(shape, rule, lambda at, extent: _tell(given, at, rule, extent, linked))
    return builder.get()


def _walk(shape: list[int], rule: IndexRule, body: Any) -> None:
    """Call `body` for every place, with the extent that applies to it."""
    if len(rule.extents) == 1:
        _grid(shape, lambda at: body(at, rule.extents[0]))
    else:
        _grid(
            shape[:-1],
            lambda at: [body([*at, k], extent) for k, extent in enumerate(rule.extents)],
        )


def _grid(shape: list[int], body: Any, *at: Any) -> None:
    if not shape:
        body(list(at))
        return
    with script.serial(0, shape[0]) as place:
        _grid(shape[1:], body, *at, place)


def _outside(value: Any, rule: IndexRule, extent: int) -> Any:
    kind = str(value.ty.dtype)
    lowest, last = (tirx.const(limit, kind) for limit in (rule.lowest(extent), extent - 1))
    return tirx.any(value < lowest, value > last)


def _check(given: Any, safe: Any, wrong: Any, at: Any, rule: IndexRule, extent: int) -> None:
    dtype = str(safe.dtype)
    value = given[tuple(at)].astype(dtype)
    script.buffer_store(safe, _safe(value, rule, extent, dtype), at)
    one, zero = tirx.const(1, "int32"), tirx.const(0, "int32")
    flag = tirx.Select(_outside(value, rule, extent), one, zero)
    script.buffer_store(wrong, tirx.bitwise_or(wrong[0], flag), [0])


def _tell(given: Any, at: Any, rule: IndexRule, extent: int, linked: bool) -> None:
    value = given[tuple(at)].astype("int64")
    limits = (tirx.const(limit, "int64") for limit in (rule.lowest(extent), extent - 1))
    with script.If(_outside(value, rule, extent)), script.Then():
        arguments = (INDEX_ERROR, rule.tensor, value, *limits)
        script.evaluate(tirx.call_cpacked(*arguments) if linked else tirx.call_packed(*arguments))
