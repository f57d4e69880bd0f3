"""Decide whether NaN in a model's input reaches its output, as it does in every oracle.

The list has the operators that tests have shown to pass NaN on, in edgekit and in the oracles.
Where an operator picks the largest of many, or makes an integer of a float, runtimes disagree about
NaN (docs/verify.md): such a model gets no reference vector with NaN.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import tvm
from tvm import relax

from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.loops import LoopRule, control_of
from edgekit.compiler.passes.indices import rule_of

_PASS_NAN_ON = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "negative", "abs", "square", "sqrt", "rsqrt"),
        *("exp", "log", "sin", "cos", "tan", "asin", "atan", "sinh", "cosh", "tanh", "sigmoid"),
        *("erf", "power", "floor", "ceil", "round", "cumsum", "image.resize2d"),
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "where"),
        *("isnan", "isinf", "sign"),  # importers choose what the sign of NaN is themselves
        *("matmul", "mean", "sum", "clip"),
        *("reshape", "permute_dims", "squeeze", "expand_dims", "flatten", "broadcast_to"),
        *("concat", "split", "strided_slice", "flip", "tile", "repeat", "take", "shape_to_tensor"),
        *("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.bias_add", "nn.batch_norm", "nn.layer_norm"),
        *("nn.conv1d_transpose", "nn.conv2d_transpose"),
        *("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.adaptive_avg_pool2d"),
        *("nn.relu", "nn.leakyrelu", "nn.prelu", "nn.silu", "nn.gelu", "nn.pad"),
        *("nn.softmax", "nn.log_softmax"),
        *("nn.dropout", "nn.group_norm", "nn.instance_norm"),
    }
)
_WITH_A_NUMBER = ("maximum", "minimum")
"""Operators that pass NaN on where one side is a number (loop_nests.py)."""
_FLOATS = ("float", "bfloat")
_SAID = {"call_dps_packed": "what stays ONNX"}


def nan_obstacle(module: Any) -> str:
    """Return a sentence on the operator that may lose NaN; empty where none does."""
    found: list[str] = []
    functions = [f for f in module.functions.values() if isinstance(f, relax.Function)]
    only_shifts = [call for function in functions for call in _shifts(function)]

    def visit(expression: Any) -> None:
        if not isinstance(expression, relax.Call) or found:
            return
        name = _name(expression)
        is_shift = any(expression.same_as(call) for call in only_shifts)
        if name and not is_shift and not _passes_on(name, expression):
            found.append(name)

    for function in functions:
        relax.analysis.post_order_visit(function.body, visit)
    return f"{_SAID.get(found[0], found[0])} may lose NaN" if found else ""


def _shifts(function: Any) -> list[Any]:
    """Return the maxima that are only subtracted from their own operand, as in a softmax: where an
    element is NaN, the difference is NaN whatever the maximum is."""
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    maxima = {
        binding.var: binding.value
        for binding in bindings
        if isinstance(binding.value, relax.Call) and _name(binding.value) == "max"
    }
    uses: Counter[Any] = Counter()
    subtracted = set()
    for binding in bindings:
        uses.update(relax.analysis.free_vars(binding.value))
        value = binding.value
        if isinstance(value, relax.Call) and _name(value) == "subtract":
            largest = maxima.get(value.args[1])
            if largest is not None and largest.args[0].same_as(value.args[0]):
                subtracted.add(value.args[1])
    uses.update(relax.analysis.free_vars(function.body.body))
    return [maxima[variable] for variable in subtracted if uses[variable] == 1]


def _name(call: Any) -> str:
    if isinstance(call.op, tvm.ir.Op):
        name = str(call.op.name).removeprefix("relax.")
        control = control_of(call)
        if isinstance(control, LoopRule) and control.data_ends:
            return "a loop that data ends"
        is_neutral = rule_of(call) is not None or control is not None
        return "" if is_neutral else name  # What a loop or a branch runs is a function of its own.
    return str(getattr(call.op, "name_hint", call.op))


def _passes_on(name: str, call: Any) -> bool:
    if name in _PASS_NAN_ON:
        return True
    if name in _WITH_A_NUMBER:
        return any(_is_number(argument) for argument in call.args)
    if name == "astype":
        # NaN is true. As any other whole number it has no value that runtimes agree on.
        kept = _is_float(call.ty) or str(call.ty.dtype) == "bool"
        return kept or not _is_float(call.args[0].ty)
    if name == "call_tir":
        return False
    # An operator that reads no floats, such as indices of a selection, has no NaN to lose.
    return not any(_is_float(argument.ty) for argument in call.args if hasattr(argument, "ty"))


def _is_number(expression: Any) -> bool:
    number = constant_array(expression)
    return number is not None and number.size == 1


def _is_float(kind: Any) -> bool:
    if hasattr(kind, "fields"):
        return any(_is_float(field) for field in kind.fields)
    return str(getattr(kind, "dtype", "")).startswith(_FLOATS)
