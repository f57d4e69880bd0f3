"""Reference inputs of a model, the same on every machine."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from numpy.random import PCG64

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.errors import UnsupportedModelError
from edgekit.base.options import option
from edgekit.base.tensors import TensorSpec

_LARGEST_INPUT_BYTES = 4 << 30
_WORD = 0xFFFFFFFFFFFFFFFF


def reference_inputs(
    specs: Sequence[TensorSpec], seed: int, ranges: Mapping[str, tuple[int, int]] | None = None
) -> dict[str, Array]:
    """Return inputs that depend only on the specs and the seed, not on the machine or numpy.

    Floats lie in [-1, 1). Quantised tensors and the small integer types (8 and 16 bits) use their
    whole range. Wider integers are 0 or 1: they are mostly masks or counts, for which both values
    are valid. An input with an entry in `ranges` takes values from it, the least and the largest
    first.
    """
    ranges = ranges or {}
    return {spec.name: _reference_input(spec, seed, ranges.get(spec.name)) for spec in specs}


def _reference_input(spec: TensorSpec, seed: int, wanted: tuple[int, int] | None) -> Array:
    dtype = numpy_dtype(spec.dtype)
    if spec.elements * dtype.itemsize > _LARGEST_INPUT_BYTES:
        raise UnsupportedModelError(
            f"the input {spec.name} of shape {spec.shape} takes more than 4 GiB",
            hint=f"give the model a smaller {option('shape')}",
        )
    bits = random_bits(spec, seed)
    if dtype.kind == "b":
        values: Array = (bits & np.uint64(1)).astype(dtype)
    elif dtype.kind in "iu":
        low, high = integer_range(spec, wanted)
        values = ((bits % np.uint64(high - low + 1)).astype(np.int64) + low).astype(dtype)
        if wanted is not None:
            values[:2] = (low, high)[: values.size]
    else:
        unit = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        values = (unit * 2.0 - 1.0).astype(dtype)
    return values.reshape(spec.shape)


def random_bits(spec: TensorSpec, *seeds: int) -> npt.NDArray[np.uint64]:
    """Return 64 bits for each element of the tensor, the same on every machine."""
    # Two builds must give the same bytes: numpy keeps the raw bits of a named generator stable,
    # but not the methods of Generator. The seed includes the input's name so that inputs of one
    # shape differ, in any order.
    source = PCG64([*(seed & _WORD for seed in seeds), zlib.crc32(spec.name.encode())])
    return np.asarray(source.random_raw(spec.elements), dtype=np.uint64)


def integer_range(spec: TensorSpec, wanted: tuple[int, int] | None) -> tuple[int, int]:
    """Return the least and the largest value of an integer input that is always in range."""
    dtype = numpy_dtype(spec.dtype)
    if wanted is not None:
        limits = np.iinfo(dtype)
        return max(wanted[0], int(limits.min)), min(wanted[1], int(limits.max))
    if dtype.itemsize <= 2:
        limits = np.iinfo(dtype)
        return int(limits.min), int(limits.max)
    if spec.quantization is not None:
        return (-1000 if dtype.kind == "i" else 0), 1000
    return 0, 1
