"""Converts dtypes of a `TensorSpec` (bfloat16 too) for numpy, and reads a user's .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.base.errors import InputError, UnsupportedModelError
from edgekit.base.npy import Array as Array
from edgekit.base.npy import read_npy, read_npy_header
from edgekit.base.tensors import DTYPES


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's dtype for a spec's dtype; UnsupportedModelError for other types."""
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


def as_spec_dtype(array: Array, name: str) -> Array:
    """Convert data read from .npy to the spec's dtype: native byte order, and bfloat16."""
    if name == "bfloat16" and array.dtype == np.dtype("V2"):
        return array.view(numpy_dtype("bfloat16"))
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_array(path: Path) -> Array:
    """Read the array in a user's .npy file, with any shape; InputError if it can't be read."""
    try:
        with path.open("rb") as stream:
            refuse_objects(path.name, read_npy_header(stream).dtype)
            stream.seek(0)
            array = read_npy(stream)
    except NPY_ERRORS as error:
        raise unreadable(path, error) from error
    return array.astype(array.dtype.newbyteorder("="), copy=False)


NPY_ERRORS = (OSError, ValueError, MemoryError)
"""The exceptions of reading a .npy or .npz file that is damaged or unreadable."""


def unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"there is no file {path}", hint="check the path")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(
        f"{path} cannot be read as numpy data: {reason}", hint="write it with numpy.save"
    )


def refuse_objects(name: str, dtype: np.dtype[Any]) -> None:
    """Refuse Python objects in .npy data: they are pickles, which may run any code."""
    if dtype.hasobject:
        raise InputError(
            f"{name} holds pickled Python objects, which edgekit does not load",
            hint='save numbers: numpy.save(path, array.astype("float32"))',
        )
