"""numpy arrays for a `TensorSpec`: its dtype (bfloat16 too), and .npy data nobody vouches for."""

from __future__ import annotations

import math
import tokenize
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from edgekit.errors import InputError, UnsupportedModelError

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


def read_array(path: Path) -> Array:
    """The array in a user's .npy file, whatever its shape; InputError says why it can't be read."""
    try:
        with path.open("rb") as stream:
            header = read_npy_header(stream)
            refuse_objects(path.name, header.dtype)
            _refuse_cut_off(path, stream, header)
            stream.seek(0)
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    except NPY_ERRORS as error:
        raise unreadable(path, error) from error
    return array.astype(array.dtype.newbyteorder("="), copy=False)


NPY_ERRORS = (OSError, ValueError, EOFError, MemoryError, tokenize.TokenError, zipfile.BadZipFile)
"""What numpy raises on .npy data that is none."""


def unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"there is no file {path}", hint="check the path")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(
        f"{path} cannot be read as numpy data: {reason}", hint="write it with numpy.save"
    )


def refuse_objects(name: str, dtype: np.dtype[Any]) -> None:
    """Python objects in .npy data are pickles, which run whatever code they like."""
    if dtype.hasobject:
        raise InputError(
            f"{name} holds pickled Python objects, which edgekit does not load",
            hint='save numbers: numpy.save(path, array.astype("float32"))',
        )


def _refuse_cut_off(path: Path, stream: IO[bytes], header: NpyHeader) -> None:
    expected = math.prod(header.shape) * header.dtype.itemsize
    found = path.stat().st_size - stream.tell()
    if found < expected:
        raise ValueError(f"it holds {found} bytes where its shape needs {expected}")
