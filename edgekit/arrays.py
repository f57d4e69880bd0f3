"""numpy arrays for a `TensorSpec`: its dtype (bfloat16 too), and .npy data nobody vouches for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from edgekit.errors import UnsupportedModelError

Array = npt.NDArray[Any]

DTYPES = (
    *("float32", "float16", "bfloat16", "float64"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
)
"""The tensor types that go into and come out of a model."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype for a spec's dtype; UnsupportedModelError for what cannot cross the border."""
    if name not in DTYPES:
        raise UnsupportedModelError(
            f"tensors of type {name} cannot go into or come out of a model",
            hint=f"edgekit passes {', '.join(DTYPES)}; convert in the model before its border",
        )
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


@dataclass(frozen=True)
class NpyHeader:
    """What .npy data says it holds."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read_npy_header(stream: IO[bytes]) -> NpyHeader:
    """Look at .npy data without reading its values; ValueError where it is none."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"its .npy version {version[0]}.{version[1]} is not 1.0 or 2.0")
    return NpyHeader(tuple(int(extent) for extent in shape), dtype)


def as_spec_dtype(array: Array, name: str) -> Array:
    """Data as .npy stores it to the dtype it stands for: native byte order, bfloat16 named."""
    if name == "bfloat16" and array.dtype == np.dtype("V2"):
        return array.view(numpy_dtype("bfloat16"))
    return array.astype(array.dtype.newbyteorder("="), copy=False)
