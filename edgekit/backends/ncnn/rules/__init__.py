"""The operators that ncnn takes, by family; of two rules that fit, the first one wins."""

from __future__ import annotations

from edgekit.backends.base import Rule
from edgekit.backends.ncnn.rules import (
    activation,
    convolution,
    elementwise,
    layout,
    linear,
    normalisation,
    pooling,
    quantised,
    reduction,
    resize,
)


def all_rules(*, int8: bool) -> tuple[Rule, ...]:
    """Return the rules, longest patterns first: a convolution with its activation before either."""
    return (
        *(quantised.rules() if int8 else ()),
        *convolution.rules(),
        *linear.rules(),
        *normalisation.rules(),
        *activation.rules(),
        *pooling.rules(),
        *reduction.rules(),
        *resize.rules(),
        *layout.rules(),
        *elementwise.rules(),
    )
