"""Operators of edgekit's own domain, which models converted from PyTorch have."""

from __future__ import annotations

from dataclasses import replace

from edgekit.models.onnx.lengths.rules.elementwise import broadcast, rooms_of
from edgekit.models.onnx.lengths.step import Rules, Step
from edgekit.models.onnx.lengths.values import Value

DOMAIN = "edgekit"


def _elementwise(step: Step) -> Value:
    """Write a function of the elements at one place. ONNX can't tell the type of its result."""
    given = [step.masked(place, value.padded) for place, value in enumerate(step.inputs) if value]
    values, shape = broadcast(step.writer, given)
    (made,) = step.again(*values)
    typed = replace(made, element=values[0].element)
    return step.shaped(typed, shape, buffer=rooms_of(values, len(shape)))


OWN: Rules = dict.fromkeys(
    (
        *("Atan2", "BesselJ0", "BesselJ1", "BesselY0", "BesselY1", "Erfc", "FromStart"),
        "Lgamma",
    ),
    _elementwise,
)
