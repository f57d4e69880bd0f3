"""Passes over loops and branches (compiler/loops.py): constants go into the functions that these
run, or the functions are written out."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.loops import (
    BODY,
    BranchRule,
    LoopRule,
    add_body,
    control_of,
    controls_in,
    put,
    times_run,
)
from edgekit.compiler.phases import guarded

LONGEST = 20_000
"""The most operators, over all iterations, that a loop may have when it is written out."""


def has_loops(module: Any) -> bool:
    return any(True for _ in controls_in(module["main"]))


def written_out(module: Any) -> Any:
    """Return the module with each loop replaced by its iterations, and each branch by a selection
    of what both of its functions compute."""
    _check_length(module)
    return guarded("writing out loops", lambda: write_out_loops()(module))


def constants_into_loops() -> Any:
    """Return the pass that makes each constant that a loop or a branch hands to its functions one
    of theirs: there it is packed and folded."""
    return _pass("ConstantsIntoLoops", _Sinking)


def write_out_loops() -> Any:
    """Return the pass that replaces each loop by its iterations, and each branch by a selection."""
    return _pass("WriteOutLoops", _WritingOut)


def _check_length(module: Any) -> None:
    functions = [module["main"], *(module[body] for body in times_run(module))]
    rules = [rule for function in functions for _, rule in controls_in(function)]
    if any(isinstance(rule, LoopRule) and rule.data_ends for rule in rules):
        raise UnsupportedModelError(
            "the model has a loop that data ends, which needs a program without TVM's runtime",
            hint="build for a CPU, and not for TVM's virtual machine",
        )
    sizes = {
        variable.name_hint: sum(len(block.bindings) for block in function.body.blocks)
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function)
    }
    if sum(times * sizes[body] for body, times in times_run(module).items()) > LONGEST:
        raise UnsupportedModelError(
            f"a loop of the model, written out, is longer than {LONGEST:,} operators",
            hint="build for a CPU: there a loop is repeated where the model needs no TVM runtime",
        )


def _pass(name: str, rewriter: Any) -> Any:
    def transform(module: Any, context: Any) -> Any:
        del context
        if not any(_is_body(*item) for item in module.functions_items()):
            return module
        mutator, pending, bodies = rewriter(module), ["main"], set()
        while pending:
            variable = mutator.builder_.get().get_global_var(pending.pop())
            function = mutator.visit_expr(mutator.builder_.get()[variable])
            mutator.builder_.update_func(variable, function)
            called = [body for _, rule in controls_in(function) for body in rule.bodies]
            pending += called
            bodies.update(called)
        functions = {
            variable: function
            for variable, function in mutator.builder_.get().functions_items()
            if variable.name_hint in bodies or not _is_body(variable, function)
        }
        return tvm.IRModule(functions, attrs=module.attrs)

    return tvm.transform.module_pass(transform, opt_level=0, name=f"edgekit.{name}")


def _is_body(variable: Any, function: Any) -> bool:
    return isinstance(function, relax.Function) and variable.name_hint.startswith(BODY)


@relax.expr_functor.mutator
class _Sinking(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any) -> None:
        super().__init__(module)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        rule = control_of(call)
        if rule is None:
            return call
        arguments = list(call.args[1].fields)
        given = {k: self._constant(one) for k, one in enumerate(arguments) if k >= rule.fixed}
        known = {k: constant for k, constant in given.items() if constant is not None}
        if not known:
            return call
        names = []
        for one in rule.bodies:
            body = self.builder_.get()[one]
            parameters = list(enumerate(body.params, rule.own))
            inner = {variable: known[k] for k, variable in parameters if k in known}
            rest = [variable for k, variable in parameters if k not in known]
            function = relax.Function(rest, put(body.body, inner), body.ret_ty)
            names.append(add_body(self.builder_, function))
        kept = [one for k, one in enumerate(arguments) if k not in known]
        symbol = relax.ExternFunc(rule.with_bodies(names).symbol)
        return relax.Call(call.op, [symbol, relax.Tuple(kept)], call.attrs, call.ty_args)

    def _constant(self, argument: Any) -> Any | None:
        if isinstance(argument, relax.Var):
            argument = self.lookup_binding(argument)
        return argument if constant_array(argument) is not None else None


@relax.expr_functor.mutator
class _WritingOut(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._module = module

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        rule = control_of(call)
        if rule is None:
            return call
        arguments = list(call.args[1].fields)
        made = (
            self._selected(rule, arguments)
            if isinstance(rule, BranchRule)
            else self._iterations(rule, arguments)
        )
        return made[0] if len(made) == 1 else relax.Tuple(made)

    def _selected(self, rule: BranchRule, arguments: list[Any]) -> list[Any]:
        condition, *given = arguments
        first, second = (
            self._inlined(body, dict(zip(body.params, given, strict=True)))
            for body in map(self._module.__getitem__, rule.bodies)
        )
        pairs = zip(first, second, strict=True)
        return [self.builder_.emit(relax.op.where(condition, *pair)) for pair in pairs]

    def _iterations(self, rule: LoopRule, arguments: list[Any]) -> list[Any]:
        body = self._module[rule.body]
        first, after = len(rule.sliced), rule.fixed
        states, fixed = arguments[first:after], arguments[after:]
        pieces: list[list[Any]] = [[] for _ in rule.stacked]
        for k in range(rule.times):
            slices = [
                self._slice(tensor, rule.times - 1 - k if backwards else k)
                for tensor, backwards in zip(arguments, rule.sliced, strict=False)
            ]
            given = zip(body.params, [*slices, *states, *fixed], strict=True)
            results = self._inlined(body, dict(given))
            states = results[: rule.states]
            for made, piece, backwards in zip(
                pieces, results[rule.states :], rule.stacked, strict=True
            ):
                made.insert(0 if backwards else len(made), relax.op.expand_dims(piece, 0))
        stacked = [self.builder_.emit(relax.op.concat(made, axis=0)) for made in pieces]
        return [*states, *stacked]

    def _slice(self, tensor: Any, place: int) -> Any:
        index = relax.const(place, "int64")
        return self.builder_.emit(relax.op.take(tensor, index, axis=0, mode="clip"))

    def _inlined(self, body: Any, values: dict[Any, Any]) -> list[Any]:
        for block in body.body.blocks:
            for binding in block.bindings:
                value = self.visit_expr(put(binding.value, values))
                if not isinstance(value, (relax.Var, relax.Tuple)):
                    value = self.builder_.emit(value, str(binding.var.name))
                values[binding.var] = value
        output = put(body.body.body, values)
        return list(output.fields)
