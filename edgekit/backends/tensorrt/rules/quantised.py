"""Quantisations of a model, between which TensorRT computes in integers.

TensorRT takes only symmetric int8: every zero point is zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.rule_tools import OUT
from edgekit.backends.tensorrt.rules.convolution import convolution_rules
from edgekit.backends.tensorrt.rules.node import checked, dequantised
from edgekit.base.arrays import Array


def rules() -> list[Rule]:
    return [
        *convolution_rules(quantised=True),
        _quantisation("quantize", wildcard(), _stored),
        _quantisation("dequantize", is_const(), _constant),
        _quantisation("dequantize", wildcard(), _loaded),
    ]


def _quantisation(operator: str, value: Any, take: Any) -> Rule:
    scale, zero = is_const(), is_const()
    call = is_op(f"relax.{operator}")(value, scale, zero)
    return Rule(operator, call, {"input": value, "scale": scale, "zero": zero, OUT: call}, take)


def _stored(match: Match) -> Layer:
    match.require_float32("input")
    return _layer(match, "QuantizeLinear", OUT)


def _loaded(match: Match) -> Layer:
    return _layer(match, "DequantizeLinear", "input")


def _layer(match: Match, kind: str, stored: str) -> Layer:
    checked(match.shape(OUT))
    weights = {f"operand{1 + place}": array for place, array in enumerate(_steps(match, stored))}
    return Layer(kind, ("input",), _along(match), weights)


def _steps(match: Match, stored: str) -> tuple[Array, Array]:
    if match.dtype(stored) != "int8":
        raise Refused(f"it stores {match.dtype(stored)}, and TensorRT int8")
    scale, zero = match.weights("scale"), match.weights("zero")
    if zero.any():
        raise Refused(
            "its zero point is not zero, as TensorRT's are; edgekit quantize --symmetric makes "
            "such models"
        )
    return scale.astype("float32"), np.zeros(scale.shape, np.int8)


def _along(match: Match) -> dict[str, Setting]:
    return {"axis": int(match.attrs(OUT).axis)} if match.weights("scale").size > 1 else {}


def _constant(match: Match) -> Layer:
    """Take weights: TensorRT stores int8 weights, and takes a bias as floats."""
    array = dequantised(match)
    if match.dtype("input") != "int8":
        return Layer("Identity", (), {}, {"operand0": array})
    scale, zero = _steps(match, "input")
    weights = {"operand0": array, "operand1": scale, "operand2": zero}
    return Layer("stored_weight", (), _along(match), weights)
