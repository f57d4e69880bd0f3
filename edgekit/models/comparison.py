"""Decide whether two tensors agree, and find their largest difference. docs/verify.md explains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from edgekit.base.decode import Range
from edgekit.base.tensors import TensorSpec
from edgekit.base.wording import counted, number

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from edgekit.base.arrays import Array

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

Unit = Literal["absolute", "steps"]
Value = float | int | bool

ALL_ZERO_ATOL = 1e-7
"""The tolerance where the oracle's whole tensor is zero and nothing gives a scale."""

ORACLE_NOISE_CAP = 0.05
"""The largest share of the largest expected magnitude that counts as the oracle's own error."""

QUANTISED_STEPS = 1
"""The tolerated steps: two correct implementations may round a tie differently."""

FEW_ELEMENTS = 2
"""The number of elements of any tensor that may lie on a tie."""

SHARE_ON_TIES = 0.01
"""The share of a tensor's elements that may lie on a tie, unless more is proven."""


@dataclass(frozen=True)
class Leeway:
    """The extra error that rounding inside a model allows a few elements of an output."""

    allowed: Annotated[float, Range(0.0, math.inf)]
    """The absolute error; for a quantised output in its steps."""
    share: Annotated[float, Range(0.0, 1.0)]
    """The share of the elements that may use it."""
    reason: str

    def elements(self, size: int) -> int:
        """Return how many of `size` elements may use it."""
        return max(FEW_ELEMENTS, math.ceil(self.share * size))

    def __or__(self, other: Leeway | None) -> Leeway:
        """Return the union of both allowances."""
        if other is None:
            return self
        return Leeway(
            max(self.allowed, other.allowed),
            max(self.share, other.share),
            f"{self.reason} or {other.reason}",
        )


SHARE_OFF_BY_A_STEP = 0.25
"""The share of a quantised output's elements that may be off by a step: libraries and function
tables round a few percent differently; a wrong zero point moves all of them."""

ON_TIES = Leeway(QUANTISED_STEPS, SHARE_OFF_BY_A_STEP, "rounding of ties")
IN_16_BITS = Leeway(8, 1.0, "arithmetic in 16 bits, whose steps are 256 times finer")
"""The leeway of outputs quantised to 16 bits: factors and tables of 16 bits are off by a few of
their steps."""


@dataclass(frozen=True)
class Tolerance:
    """The allowed error of an element: rtol * |expected| + of_max * max|expected tensor| + atol,
    plus the oracle's own error (`oracle_noise`, capped by ORACLE_NOISE_CAP).

    For a quantised tensor with `steps`, only those steps count. All zero means exactly equal. A few
    elements may use the `leeway` in addition.
    """

    rtol: float = 0.0
    of_max: float = 0.0
    atol: float = 0.0
    oracle_noise: float = 0.0
    steps: int | None = None
    leeway: Leeway | None = None

    def __str__(self) -> str:
        if self.leeway is not None:
            unit = "" if self.steps is None else " steps"
            return f"{self._rule()}; {number(self.leeway.allowed)}{unit} on ties"
        return self._rule()

    def _rule(self) -> str:
        if self.steps:
            return counted(self.steps, "step")
        parts = [f"{self.rtol:g}*expected"] if self.rtol else []
        parts += [f"{self.of_max:g}*largest"] if self.of_max else []
        parts += [f"{self.atol:g}"] if self.atol else []
        parts += [f"{self.oracle_noise:g}"] if self.oracle_noise else []
        return " + ".join(parts) or "exact"


EXACT = Tolerance()
_FLOATS: Mapping[str, Tolerance] = {
    "float64": Tolerance(rtol=1e-6, of_max=1e-7),
    # onnxruntime's sigmoid and tanh are rational approximations, accurate to only 1e-7.
    "float32": Tolerance(rtol=1e-3, of_max=1e-4, oracle_noise=5e-7),
    "float16": Tolerance(rtol=1e-2, of_max=5e-3),
    "bfloat16": Tolerance(rtol=4e-2, of_max=2e-2),
}


@dataclass(frozen=True)
class Widening:
    """The user's replacements of the defaults; None keeps a default."""

    rtol: float | None = None
    atol: float | None = None
    steps: int | None = None


def tolerance_for(
    spec: TensorSpec, widening: Widening | None = None, leeway: Leeway | None = None
) -> Tolerance:
    """Return the default for the tensor's type, with the user's replacements."""
    if _is_quantised(spec):
        usual = IN_16_BITS if spec.dtype.endswith("int16") else ON_TIES
        tolerance = Tolerance(steps=0, leeway=usual | leeway)
    else:
        tolerance = replace(_FLOATS.get(spec.dtype, EXACT), leeway=leeway)
    if widening is None:
        return tolerance
    if tolerance.steps is not None:
        if widening.steps is None:
            return tolerance
        return replace(tolerance, steps=widening.steps, leeway=leeway)
    if spec.dtype == "bool":
        return tolerance
    return replace(
        tolerance,
        rtol=tolerance.rtol if widening.rtol is None else widening.rtol,
        atol=tolerance.atol if widening.atol is None else widening.atol,
    )


@dataclass(frozen=True)
class WorstElement:
    """The element whose error exceeds its limit most, or comes nearest to it."""

    index: tuple[int, ...]
    expected: Value
    actual: Value


@dataclass(frozen=True)
class TensorComparison:
    name: str
    dtype: str
    shape: tuple[int, ...]
    tolerance: Tolerance
    elements: int
    out_of_tolerance: int
    max_error: float
    """The largest absolute error; infinite if only one side is NaN or infinite."""
    unit: Unit
    """The unit of `max_error`."""
    largest: float
    """The largest finite expected magnitude."""
    worst: WorstElement | None
    """The worst element; None if all elements are equal."""
    top1_agrees: bool | None
    """Whether both rank the same class first; None if these do not look like class scores."""
    mismatch: str | None
    """The reason why the tensors could not be compared."""
    passed: bool

    def error_in_words(self) -> str:
        return error_in_words(self.max_error, self.unit)


def error_in_words(error: float, unit: Unit) -> str:
    return counted(round(error), "step") if unit == "steps" else number(error)


@dataclass(frozen=True)
class Verification:
    tensors: tuple[TensorComparison, ...]

    @property
    def passed(self) -> bool:
        return all(tensor.passed for tensor in self.tensors)


def compare(
    expected: Mapping[str, Array],
    actual: Mapping[str, Array],
    specs: Sequence[TensorSpec],
    tolerances: Mapping[str, Tolerance] | None = None,
) -> Verification:
    """Compare every output that `specs` name; NaN equals NaN, and infinity of the same sign."""
    return Verification(
        tuple(
            compare_tensor(
                expected.get(spec.name),
                actual.get(spec.name),
                spec,
                (tolerances or {}).get(spec.name) or tolerance_for(spec),
            )
            for spec in specs
        )
    )


def compare_tensor(
    expected: Array | None, actual: Array | None, spec: TensorSpec, tolerance: Tolerance
) -> TensorComparison:
    unit: Unit = "absolute" if tolerance.steps is None else "steps"
    mismatch = _mismatch(expected, actual)
    if expected is None or actual is None or mismatch is not None:
        return _incomparable(spec, tolerance, unit, mismatch)
    error, largest = _errors(expected, actual)
    allowed = _allowed(expected, largest, tolerance)
    outside = error > allowed
    if tolerance.leeway is not None and outside.sum() <= tolerance.leeway.elements(expected.size):
        allowed = allowed + tolerance.leeway.allowed
        outside = error > allowed
    return TensorComparison(
        name=spec.name,
        dtype=spec.dtype,
        shape=expected.shape,
        tolerance=tolerance,
        elements=expected.size,
        out_of_tolerance=int(outside.sum()),
        max_error=float(error.max(initial=0.0)),
        unit=unit,
        largest=largest,
        worst=_worst(expected, actual, error, error - allowed),
        top1_agrees=_top1(expected, actual, spec),
        mismatch=None,
        passed=not outside.any(),
    )


def within(expected: Array, actual: Array, tolerance: Tolerance) -> Flags:
    """Return for each element whether it is within the tolerance, without any leeway."""
    error, largest = _errors(expected, actual)
    close: Flags = error <= _allowed(expected, largest, tolerance)
    return close


def _incomparable(
    spec: TensorSpec, tolerance: Tolerance, unit: Unit, mismatch: str | None
) -> TensorComparison:
    return TensorComparison(
        name=spec.name,
        dtype=spec.dtype,
        shape=spec.shape,
        tolerance=tolerance,
        elements=spec.elements,
        out_of_tolerance=spec.elements,
        max_error=float("inf"),
        unit=unit,
        largest=0.0,
        worst=None,
        top1_agrees=None,
        mismatch=mismatch,
        passed=False,
    )


def _allowed(expected: Array, largest: float, tolerance: Tolerance) -> Floats:
    import numpy as np

    if tolerance.steps is not None:
        return np.full(expected.shape, float(tolerance.steps))
    with np.errstate(invalid="ignore"):
        allowed = tolerance.rtol * np.abs(expected.astype(np.float64))
    allowed = np.where(np.isfinite(allowed), allowed, 0.0)
    floor = min(tolerance.oracle_noise, ORACLE_NOISE_CAP * largest)
    if tolerance.of_max and largest == 0.0:
        floor = ALL_ZERO_ATOL
    return np.asarray(allowed + tolerance.of_max * largest + tolerance.atol + floor)


def _is_quantised(spec: TensorSpec) -> bool:
    return spec.quantization is not None and spec.dtype.startswith(("int", "uint"))


def _mismatch(expected: Array | None, actual: Array | None) -> str | None:
    if expected is None:
        return "the oracle gives no such output"
    if actual is None:
        return "the device gives no such output"
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return (
            f"expected {expected.dtype.name}{list(expected.shape)}, "
            f"got {actual.dtype.name}{list(actual.shape)}"
        )
    return None


def _errors(expected: Array, actual: Array) -> tuple[Floats, float]:
    """Return each element's absolute error, and the largest finite expected magnitude."""
    import numpy as np

    left, right = expected.astype(np.float64), actual.astype(np.float64)
    same: Flags = (expected == actual) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(right - left)
    # Two different 64-bit integers can round to the same float64.
    error = np.where(error == 0.0, 1.0, error)
    error = np.where(np.isfinite(left) & np.isfinite(right), error, np.inf)
    finite = np.abs(left[np.isfinite(left)])
    return np.where(same, 0.0, error), float(finite.max(initial=0.0))


def _worst(expected: Array, actual: Array, error: Floats, excess: Floats) -> WorstElement | None:
    import numpy as np

    if not error.any():
        return None
    at = int(np.argmax(np.where(error > 0.0, excess, -np.inf)))
    index = tuple(int(i) for i in np.unravel_index(at, expected.shape))
    return WorstElement(index, _plain(expected[index]), _plain(actual[index]))


def _plain(value: Any) -> Value:
    import numpy as np

    if isinstance(value, np.bool_):
        return bool(value)
    return int(value) if isinstance(value, np.integer) else float(value)


def _top1(expected: Array, actual: Array, spec: TensorSpec) -> bool | None:
    import numpy as np

    scores = [extent for extent in expected.shape if extent != 1]
    is_scored = spec.dtype.startswith(("float", "bfloat")) or _is_quantised(spec)
    if len(scores) != 1 or scores[0] < 2 or not is_scored:
        return None
    left, right = expected.reshape(-1).astype(np.float64), actual.reshape(-1).astype(np.float64)
    if np.isnan(left).any() or np.isnan(right).any():
        return None
    # A tie for first place on either side is no disagreement.
    return bool(right[np.argmax(left)] == right.max() or left[np.argmax(right)] == left.max())
