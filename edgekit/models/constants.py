"""Values that a user binds model inputs to, on the command line or in edgekit.toml."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.base.arrays import Array
from edgekit.base.errors import InputError
from edgekit.base.npy import read_npy

_DTYPES = {"i": "int64", "f": "float32", "b": "bool"}


def numbers(value: object) -> Array | None:
    """Return numbers or booleans, alone or in nested lists, as int64, float32 or bool; else None.

    The importer casts them to the dtype that the model declares.
    """
    try:
        array = np.array(value)
    except (ValueError, OverflowError):  # a ragged list
        return None
    dtype = _DTYPES.get(array.dtype.kind)
    return None if dtype is None or array.size == 0 else array.astype(dtype)


def read_constant(path: Path, name: str) -> Array:
    """Read the value of input `name` from a .npy file."""
    try:
        with path.open("rb") as stream:
            array = read_npy(stream)
    except OSError as error:
        raise InputError(
            f"{path}, meant for the input {name}, cannot be read: {error.strerror or error}",
            hint="check the path",
        ) from error
    except (ValueError, MemoryError) as error:
        raise InputError(
            f"{path}, meant for the input {name}, is not a .npy file of numbers",
            hint="write it with numpy.save, without Python objects in it",
            details=tuple(str(error).splitlines()[:1]),
        ) from error
    return array
