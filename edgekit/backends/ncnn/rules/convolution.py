"""Convolutions and transposed convolutions, with a fused bias and activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.rules.activation import FUSED, fused_settings
from edgekit.backends.ncnn.rules.common import held_shape, require_batch_of_one
from edgekit.backends.plain.rules.curves import Curve
from edgekit.backends.rule_tools import OUT, integers, output_channels_first, per_channel
from edgekit.base.arrays import Array

_LAYOUTS = {
    "conv1d": "NCW",
    "conv2d": "NCHW",
    "conv1d_transpose": "NCW",
    "conv2d_transpose": "NCHW",
}
_KERNELS = {
    "conv1d": "OIW",
    "conv2d": "OIHW",
    "conv1d_transpose": "IOW",
    "conv2d_transpose": "IOHW",
}


def rules() -> list[Rule]:
    return [
        rule
        for operator in ("conv2d", "conv1d", "conv2d_transpose", "conv1d_transpose")
        for rule in rules_with_activation(f"nn.{operator}", operator, _taker(operator))
    ]


def rules_with_activation(operator: str, name: str, take: Callable[[Match], Layer]) -> list[Rule]:
    """Return a rule for each activation that can be fused, and one without activation."""
    return [
        *(_rule(operator, f"{name}+{curve.name}", take, curve) for curve in FUSED),
        _rule(operator, name, take, None),
    ]


def _rule(operator: str, name: str, take: Callable[[Match], Layer], curve: Curve | None) -> Rule:
    data, weight, bias = wildcard(), is_const(), is_const()
    call = is_op(f"relax.{operator}")(data, weight)
    added = is_op("relax.add")(call, bias) | is_op("relax.add")(bias, call)
    result: Any = added | call
    parts: dict[str, Any] = {"input": data, "weight": weight, "bias": bias, "call": call}
    if curve is not None:
        result, own = curve.write(result)
        parts |= own

    def take_all(match: Match) -> Layer:
        held_shape(match, OUT)
        layer = take(match)
        if curve is None:
            return layer
        settings = {**layer.settings, **fused_settings(curve, match)}
        return Layer(layer.kind, layer.inputs, settings, layer.weights)

    return Rule(name, result, {**parts, OUT: result}, take_all)


def _taker(operator: str) -> Callable[[Match], Layer]:
    transposed = operator.endswith("_transpose")

    def take(match: Match) -> Layer:
        attrs = match.attrs("call")
        held_shape(match, "input")
        match.require_float32("weight")
        shape, output = match.shape("input"), match.shape("call")
        require_batch_of_one(shape)
        _require_layout(operator, attrs)
        groups = int(attrs.groups)
        weight = match.weights("weight")
        if transposed:
            weight = output_channels_first(weight, groups)
        channels, rank = output[1], len(shape) - 2
        settings: dict[str, Setting] = {
            "num_output": channels,
            "weight_data_size": int(weight.size),
            **_window(attrs, weight.shape[-rank:]),
        }
        if groups > 1:
            settings["group"] = groups
        weights: dict[str, Array] = {"weight": weight}
        if match.has("bias"):
            settings["bias_term"] = 1
            weights["bias"] = per_channel(match, "bias", channels, rank)
        kind = "Deconvolution" if transposed else "Convolution"
        name = f"{kind}{'DepthWise' if groups > 1 else ''}{'1D' if rank == 1 else ''}"
        return Layer(name, ("input",), settings, weights)

    return take


def _require_layout(operator: str, attrs: Any) -> None:
    layout = str(attrs.data_layout)
    if layout != _LAYOUTS[operator] or str(attrs.kernel_layout) != _KERNELS[operator]:
        raise Refused(f"its layout is {layout}, {attrs.kernel_layout}")
    if str(attrs.out_layout) not in ("", _LAYOUTS[operator]):
        raise Refused(f"its result's layout is {attrs.out_layout}")
    if any(integers(getattr(attrs, "output_padding", ()) or ())):
        raise Refused("its output is padded")


def _window(attrs: Any, kernel: tuple[int, ...]) -> dict[str, Setting]:
    """Return strides, dilations and padding by axis: ncnn's `h` before its `w`."""
    rank = len(kernel)
    padding = integers(attrs.padding)
    if min(padding) < 0:
        raise Refused("its padding is negative")
    names = ("h", "w")[-rank:]
    settings: dict[str, Setting] = {}
    for axis, name in enumerate(names):
        before, after = ("pad_top", "pad_bottom") if name == "h" else ("pad_left", "pad_right")
        settings |= {
            f"kernel_{name}": kernel[axis],
            f"stride_{name}": integers(attrs.strides)[axis],
            f"dilation_{name}": integers(attrs.dilation)[axis],
            before: padding[axis],
            after: padding[rank + axis],
        }
    return settings
