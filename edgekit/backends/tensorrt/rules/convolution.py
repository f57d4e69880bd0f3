"""Convolutions and transposed convolutions with a bias, matrix products, and layer norm."""

from __future__ import annotations

from typing import Any

from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.rule_tools import OUT, integers, per_channel, positive
from edgekit.backends.tensorrt.rules.node import checked, dequantised, node, rule, shape
from edgekit.base.arrays import Array

_LAYOUTS = {
    1: ("NCW", "OIW", "IOW"),
    2: ("NCHW", "OIHW", "IOHW"),
    3: ("NCDHW", "OIDHW", "IODHW"),
}


def rules() -> list[Rule]:
    return [
        *convolution_rules(quantised=False),
        rule("matmul", _product, arguments=2),
        rule("nn.layer_norm", _layer_norm, arguments=3),
    ]


def convolution_rules(*, quantised: bool) -> list[Rule]:
    """Return rules for quantised models: another layer dequantises the weights, and the bias is
    stored as integers too."""
    operators = [f"nn.conv{rank}d{end}" for rank in _LAYOUTS for end in ("", "_transpose")]
    return [_rule(operator, quantised) for operator in operators]


def _rule(operator: str, quantised: bool) -> Rule:
    data, bias = wildcard(), is_const()
    weight = wildcard() if quantised else is_const()
    call = is_op(f"relax.{operator}")(data, weight)
    added: Any = bias
    parts = {"input": data, "weight": weight, "bias": bias, "call": call}
    if quantised:
        loaded = is_op("relax.dequantize")(bias, is_const(), is_const())
        added = is_op("relax.reshape")(loaded, wildcard())
        parts["loaded"] = loaded
    result: Any = is_op("relax.add")(call, added) | is_op("relax.add")(added, call) | call
    return Rule(operator, result, {**parts, OUT: result}, _convolution)


def _convolution(match: Match) -> Layer:
    attrs = match.attrs("call")
    output = shape(match, "call")
    rank, transposed = len(output) - 2, match.operator("call").endswith("_transpose")
    data, kernel, turned = _LAYOUTS[rank]
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    if layouts != (data, turned if transposed else kernel):
        raise Refused(f"its layout is {', '.join(layouts)}")
    if str(attrs.out_layout) not in ("", data):
        raise Refused(f"its result's layout is {attrs.out_layout}")
    padding = integers(attrs.padding)
    if min(padding) < 0:
        raise Refused("its padding is negative")
    if match.has("bias") and shape(match, OUT) != output:
        raise Refused("what is added to it has another shape")
    if match.array("weight") is None and not _is_dequantised(match.value("weight")):
        raise Refused("its weights are computed")
    bias = {2: _bias(match, output[1], rank)} if match.has("bias") else {}
    settings: dict[str, Setting] = {
        "kernel_shape": checked(match.shape("weight"))[2:],
        "strides": integers(attrs.strides),
        "dilations": integers(attrs.dilation),
        "pads": padding,
        "group": int(attrs.groups),
    }
    if transposed:
        settings["output_padding"] = integers(attrs.output_padding)
    kind = "ConvTranspose" if transposed else "Conv"
    return node(match, kind, ("input", "weight"), bias, settings)


def _is_dequantised(value: Any) -> bool:
    return str(getattr(getattr(value, "op", None), "name", "")) == "relax.dequantize"


def _bias(match: Match, channels: int, behind: int) -> Array:
    if not match.has("loaded"):
        values: Array = per_channel(match, "bias", channels, behind)
        return values
    parts = ("input", "scale", "zero", OUT)
    for part, value in zip(
        parts, (*match.arguments("loaded"), match.expression("loaded")), strict=True
    ):
        match = match.with_part(part, value)
    if match.array("input") is None:
        raise Refused("its bias is computed")
    bias = dequantised(match).reshape(-1)
    if bias.size != channels:
        raise Refused("its bias is not one number a channel")
    return bias


def _product(match: Match) -> Layer:
    if min(len(shape(match, part)) for part in ("input", "input1")) < 2:
        raise Refused("one side is a vector")
    return node(match, "MatMul", ("input", "input1"))


def _layer_norm(match: Match) -> Layer:
    """Spell out a layer norm: the parser of TensorRT 8.5 has no LayerNormalization."""
    attrs, extents = match.attrs(OUT), shape(match, "input")
    axes = positive(integers(attrs.axes), len(extents))
    if tuple(sorted(axes)) != tuple(range(len(extents) - len(axes), len(extents))):
        raise Refused("it is not over the last axes")
    parts = ("input", "input1", "input2")
    settings: dict[str, Setting] = {"axes": axes, "epsilon": float(attrs.epsilon)}
    return node(match, "layer_norm", parts, settings=settings)
