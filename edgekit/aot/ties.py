"""Detect sums half way between two stored values, which a single rounding sends away from zero and
the short instructions up."""

from __future__ import annotations

from edgekit.aot.arithmetic import has_ties
from edgekit.aot.operators import Rescale
from edgekit.base.arrays import Array


def rounds_ties_wrong(rescale: Rescale, largest: int) -> bool:
    """Return whether a tie rounds wrong; values that an activation cuts off do not count."""
    if not rescale.rounds_once or rescale.low >= rescale.zero_point:
        return False
    return any(has_ties(factor, largest) for factor in rescale.factors)


def largest_sum(weights: Array, bias: Array) -> int:
    """Return the largest sum of any output channel; `weights` have the output channels first."""
    import numpy as np

    of_each = np.abs(np.asarray(weights, np.int64)).reshape(len(weights), -1).sum(axis=1)
    return int((255 * of_each + np.abs(np.asarray(bias, np.int64))).max())
