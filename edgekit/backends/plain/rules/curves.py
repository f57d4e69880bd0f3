"""Activation functions, as single operators and as importers spell them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Refused
from edgekit.backends.match import Match
from edgekit.backends.rule_tools import number, scalar

Settings = Mapping[str, float]
Parts = Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """An activation function of any input."""

    name: str
    write: Callable[[Any], tuple[Any, Parts]]
    """A function from the input's pattern to the whole pattern and the parts that `read` uses."""
    read: Callable[[Match], Settings]


def _call(name: str, *arguments: Any) -> Any:
    return is_op(f"relax.{name}")(*arguments)


def _either_way(name: str, first: Any, second: Any) -> Any:
    return _call(name, first, second) | _call(name, second, first)


def _nothing(match: Match) -> Settings:
    return {}


def _simple(name: str) -> Callable[[Any], tuple[Any, Parts]]:
    def write(value: Any) -> tuple[Any, Parts]:
        call = _call(name, value)
        return call, {name: call}

    return write


def _leaky(match: Match) -> Settings:
    return {"slope": float(match.attrs("nn.leakyrelu").alpha)}


def _write_clip(value: Any) -> tuple[Any, Parts]:
    call = _call("clip", value, wildcard(), wildcard())
    return call, {"clip": call}


def _bounds(match: Match) -> tuple[float, float]:
    _, low, high = match.arguments("clip")
    return number(low), number(high)


def _clip(match: Match) -> Settings:
    low, high = _bounds(match)
    return {"min": low, "max": high}


def _require_bounds(match: Match, high: float) -> None:
    if _bounds(match) != (0.0, high):
        raise Refused(f"it clips to {_bounds(match)}, and the library's layer to {(0.0, high)}")


def _write_line(value: Any) -> tuple[Any, Parts]:
    """Build clip(value * slope + offset)."""
    slope, offset = is_const(), is_const()
    line = _either_way("add", _either_way("multiply", value, slope), offset)
    clip = _call("clip", line, wildcard(), wildcard())
    return clip, {"clip": clip, "slope": slope, "offset": offset}


def _line(match: Match) -> Settings:
    _require_bounds(match, 1.0)
    return _sloping(scalar(match, "slope"), scalar(match, "offset"))


def _sloping(slope: float, offset: float) -> Settings:
    if slope <= 0:
        raise Refused("its slope is not positive")
    return {"alpha": slope, "beta": offset}


def _write_hard_swish(value: Any) -> tuple[Any, Parts]:
    clip, parts = _write_line(value)
    call = _either_way("multiply", value, clip)
    return call, {**parts, "hard_swish": call}


def _write_hard_swish_in_thirds(value: Any) -> tuple[Any, Parts]:
    """Build value * clip(value + 3, 0, 6) / 6, with the division at either place."""
    offset, divisor = is_const(), is_const()
    shifted = _either_way("add", value, offset)
    clip = _call("clip", shifted, wildcard(), wildcard())
    late = _call("divide", _either_way("multiply", value, clip), divisor)
    early = _either_way("multiply", value, _call("divide", clip, divisor))
    call = late | early
    return call, {"clip": clip, "offset": offset, "divisor": divisor, "hard_swish_6": call}


def _hard_swish_in_thirds(match: Match) -> Settings:
    divisor = scalar(match, "divisor")
    _require_bounds(match, divisor)
    return _sloping(1 / divisor, scalar(match, "offset") / divisor)


def _write_swish(value: Any) -> tuple[Any, Parts]:
    call = _either_way("multiply", value, _call("sigmoid", value)) | _call("nn.silu", value)
    return call, {"swish": call}


def _write_softplus(value: Any) -> tuple[Any, Parts]:
    """Build max(value, 0) + log(1 + exp(-|value|)), as edgekit's importers write it."""
    zero, one = is_const(), is_const()
    small = _call("exp", _call("negative", _call("abs", value)))
    folded = _call("log", _either_way("add", one, small))
    call = _either_way("add", _either_way("maximum", value, zero), folded)
    return call, {"zero": zero, "one": one, "softplus": call}


def _softplus(match: Match) -> Settings:
    if scalar(match, "zero") != 0 or scalar(match, "one") != 1:
        raise Refused("its constants are not those of softplus")
    return {}


def _write_mish(value: Any) -> tuple[Any, Parts]:
    softplus, parts = _write_softplus(value)
    call = _either_way("multiply", value, _call("tanh", softplus))
    return call, {**parts, "mish": call}


def _write_elu(value: Any) -> tuple[Any, Parts]:
    alpha, one, zero = is_const(), is_const(), is_const()
    curve = _either_way("multiply", alpha, _call("subtract", _call("exp", value), one))
    call = _call("where", _call("less", value, zero), curve, value)
    return call, {"alpha": alpha, "one": one, "zero": zero, "elu": call}


def _elu(match: Match) -> Settings:
    _softplus(match)
    return {"alpha": scalar(match, "alpha")}


CURVES = (
    Curve("mish", _write_mish, _softplus),
    Curve("hard_swish", _write_hard_swish, _line),
    Curve("hard_swish_6", _write_hard_swish_in_thirds, _hard_swish_in_thirds),
    Curve("swish", _write_swish, _nothing),
    Curve("softplus", _write_softplus, _softplus),
    Curve("elu", _write_elu, _elu),
    Curve("hard_sigmoid", _write_line, _line),
    Curve("nn.relu", _simple("nn.relu"), _nothing),
    Curve("nn.leakyrelu", _simple("nn.leakyrelu"), _leaky),
    Curve("clip", _write_clip, _clip),
    Curve("sigmoid", _simple("sigmoid"), _nothing),
    Curve("tanh", _simple("tanh"), _nothing),
    Curve("nn.gelu", _simple("nn.gelu"), _nothing),
    Curve("nn.gelu_tanh", _simple("nn.gelu_tanh"), _nothing),
    Curve("erf", _simple("erf"), _nothing),
)
