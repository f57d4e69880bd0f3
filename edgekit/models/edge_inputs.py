"""Edge-case inputs of a model: zeros, the largest values, NaN.

Like the usual reference inputs they are the same on every machine. docs/verify.md lists their
values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.tensors import TensorSpec
from edgekit.models.inputs import integer_range, random_bits
from edgekit.models.preprocess import Preprocess

MAGNITUDES = (256.0, 16.0)
"""The magnitudes of the largest floats, in the order in which they are tried: within float16, and
beyond the points at which exp, tanh and the like saturate."""
_NUDGE = 2.0**-18
"""The relative change of a nudge: about the error of float32 sums."""
_LARGEST_STREAM = 1
"""The random stream of the largest values, apart from that of the usual inputs."""
_BRIGHTEST = 255.0


def zero_inputs(
    specs: Sequence[TensorSpec],
    usual: Mapping[str, Array],
    ranges: Mapping[str, tuple[int, int]],
) -> dict[str, Array]:
    """Return zeros, which quantised inputs store as their zero point.

    An integer that may be a divisor or a count is zero only if the usual inputs contain a zero;
    otherwise it is one.
    """
    return {spec.name: _zeros(spec, usual[spec.name], ranges.get(spec.name)) for spec in specs}


def largest_inputs(
    specs: Sequence[TensorSpec],
    seed: int,
    ranges: Mapping[str, tuple[int, int]],
    preprocess: Mapping[str, Preprocess],
    magnitude: float,
) -> dict[str, Array]:
    """Return integers at both ends of their range, and floats spread over theirs: the range of an
    image's preprocessing, or `magnitude` without one."""
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
    """Return NaN in every float input, and the usual values in the others."""
    return {
        name: np.full_like(array, np.nan) if is_float(array) else array
        for name, array in usual.items()
    }


def nudged_inputs(inputs: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield the inputs with each float nudged by about the error of a sum, or by its type's
    smallest step: alternately up and down, and then reversed. Yield nothing without floats."""
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
    """Tell whether the elements are floats, half precision included."""
    return str(array.dtype.name).startswith(("float", "bfloat"))


def _epsilon(array: Array) -> float:
    if array.dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(array.dtype).eps)
