"""What a few timings of the same thing say."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from edgekit.building.tuned_kernels import WORTH_IT

_FAR_OUT = 3.0
"""So many times the usual distance from the median is no timing of the kernel alone."""
_USUAL = 1.4826
"""From the median distance to what a standard deviation would be."""
_LEAST_SPREAD = 0.01
"""Of the median: timings that are nearer than that are never left out."""

DRIFT = 0.15
"""Of the rule's own time within one batch. Beyond, the batch says little."""
THROTTLED = 1.25
"""Of the rule's own time at first: a device that takes so much longer now is hot, or busy."""


def without_outliers(values: Sequence[float]) -> list[float]:
    """At least half of them stay."""
    middle = median(values)
    distance = _USUAL * median(abs(value - middle) for value in values)
    limit = _FAR_OUT * max(distance, _LEAST_SPREAD * middle)
    return [value for value in values if abs(value - middle) <= limit]


def typical(values: Sequence[float]) -> float:
    """The median of what is no outlier."""
    return median(without_outliers(values))


def drifted(first: float, last: float) -> bool:
    return abs(last - first) > DRIFT * min(first, last)


def is_better(microseconds: float, own: float) -> bool:
    return microseconds < WORTH_IT * own
