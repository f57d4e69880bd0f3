"""Inputs at the edges of what a model may be given: zeros, the largest values, NaN.

Like the usual reference inputs they are the same on every machine. docs/verify.md tells which
values they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.tensors import TensorSpec
from edgekit.models.inputs import integer_range, random_bits
from edgekit.models.preprocess import Preprocess

MAGNITUDES = (256.0, 16.0)
"""The largest floats, the first where the model takes them: past every point at which exp, tanh
and the like saturate, and within float16."""
_NUDGE = 2.0**-18
"""Relative. About what float32 sums are off by."""
_LARGEST_STREAM = 1
"""Tells the random bits of the largest values from those of the usual inputs."""
_BRIGHTEST = 255.0


def zero_inputs(
    specs: Sequence[TensorSpec],
    usual: Mapping[str, Array],
    ranges: Mapping[str, tuple[int, int]],
) -> dict[str, Array]:
    """Zeros, which quantised inputs store as their zero point.

    An integer that may be a divisor or a count is only zero where the usual inputs have a zero
    too, and one otherwise.
    """
    return {spec.name: _zeros(spec, usual[spec.name], ranges.get(spec.name)) for spec in specs}


def largest_inputs(
    specs: Sequence[TensorSpec],
    seed: int,
    ranges: Mapping[str, tuple[int, int]],
    preprocess: Mapping[str, Preprocess],
    magnitude: float,
) -> dict[str, Array]:
    """Integers at either end of their range, and floats all over theirs, which reaches as far as
    the preprocessing of an image does, or `magnitude` where there is none."""
    found = {}
    for spec in specs:
        dtype, bits = numpy_dtype(spec.dtype), random_bits(spec, seed, _LARGEST_STREAM)
        if dtype.kind == "b":
            values: Array = np.ones(spec.elements, dtype)
        elif dtype.kind in "iu":
            ends = np.array(integer_range(spec, ranges.get(spec.name)), dtype)
            values = ends[(bits & np.uint64(1)).astype(np.int64)]
        else:
            low, high = _span(preprocess.get(spec.name), magnitude)
            unit = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
            values = (low + (high - low) * unit).astype(dtype)
            values[:2] = (high, low)[: values.size]
        found[spec.name] = values.reshape(spec.shape)
    return found


def nan_inputs(usual: Mapping[str, Array]) -> dict[str, Array]:
    """NaN in every float input, and the usual values in the others."""
    return {
        name: np.full_like(array, np.nan) if is_float(array) else array
        for name, array in usual.items()
    }


def nudged_inputs(inputs: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield the same with each float moved by about what a sum is off by, or by the least that its
    type can say: one up and the next down, and the other way round. Nothing without floats."""
    if not any(is_float(array) for array in inputs.values()):
        return
    for sign in (1.0, -1.0):
        moved = dict(inputs)
        for name, array in inputs.items():
            if is_float(array):
                least = sign * max(_NUDGE, float(_epsilon(array)))
                signs = np.where(np.arange(array.size) % 2, -least, least).reshape(array.shape)
                moved[name] = (array.astype(np.float64) * (1.0 + signs)).astype(array.dtype)
        yield moved


def _zeros(spec: TensorSpec, usual: Array, wanted: tuple[int, int] | None) -> Array:
    zeros = np.zeros_like(usual)
    if usual.dtype.kind not in "iu":
        return zeros
    if spec.quantization is not None:
        limits = np.iinfo(usual.dtype)
        zero = min(max(spec.quantization.zero_points[0], int(limits.min)), int(limits.max))
        return np.full_like(usual, zero)
    low, high = integer_range(spec, wanted)
    if wanted is None and (usual != 0).all():
        return np.full_like(usual, 1)
    return np.full_like(usual, min(max(0, low), high))


def _span(preprocess: Preprocess | None, magnitude: float) -> tuple[float, float]:
    if preprocess is None:
        return -magnitude, magnitude
    ends = [
        (pixel * preprocess.scale - mean) / std
        for pixel in (0.0, _BRIGHTEST)
        for mean in preprocess.mean
        for std in preprocess.std
    ]
    return min(ends), max(ends)


def is_float(array: Array) -> bool:
    """Return whether the elements are floats, half ones included."""
    return str(array.dtype.name).startswith(("float", "bfloat"))


def _epsilon(array: Array) -> float:
    if array.dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(array.dtype).eps)
