"""Statistics of repeated timings."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from edgekit.building.tuned_kernels import WORTH_IT

_FAR_OUT = 3.0
"""The distance from the median, in deviations, beyond which a timing is an outlier."""
_USUAL = 1.4826
"""The factor from the median distance to a standard deviation."""
_LEAST_SPREAD = 0.01
"""The share of the median within which a timing is never an outlier."""

DRIFT = 0.15
"""The largest change of the rule's own time within a reliable batch."""
THROTTLED = 1.25
"""The ratio to the rule's first own time above which a device is hot or busy."""


def without_outliers(values: Sequence[float]) -> list[float]:
    """Return the values without outliers, at least half of them."""
    middle = median(values)
    distance = _USUAL * median(abs(value - middle) for value in values)
    limit = _FAR_OUT * max(distance, _LEAST_SPREAD * middle)
    return [value for value in values if abs(value - middle) <= limit]


def typical(values: Sequence[float]) -> float:
    """Return the median without outliers."""
    return median(without_outliers(values))


def drifted(first: float, last: float) -> bool:
    return abs(last - first) > DRIFT * min(first, last)


def is_better(microseconds: float, own: float) -> bool:
    return microseconds < WORTH_IT * own
