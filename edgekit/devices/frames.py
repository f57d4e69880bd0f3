"""The messages between edgekit and a process that runs a model: JSON, then arrays, over a pipe.

A frame is the length of its header (4 bytes, big endian), the header (JSON), and the bytes of the
arrays that the header lists, one after another. Imported by the process that runs the model, so
it needs numpy alone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.arrays import Array, numpy_dtype
from edgekit.json_reader import read_json

ALIGNMENT = 64
"""Bytes. Compiled code uses aligned vector loads on its inputs."""

_LENGTH = struct.Struct(">I")
_LARGEST_HEADER = 64 << 20


@dataclass(frozen=True)
class Frame:
    message: Mapping[str, Any]
    arrays: tuple[Array, ...]


def encode_frame(
    message: Mapping[str, object], arrays: Sequence[Array] = ()
) -> list[bytes | memoryview]:
    """The pieces to write, in order; arrays are not copied where they are contiguous."""
    described = [{"dtype": array.dtype.name, "shape": array.shape} for array in arrays]
    header = json.dumps({"message": message, "arrays": described}).encode()
    pieces: list[bytes | memoryview] = [_LENGTH.pack(len(header)), header]
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if flat.size:
            pieces.append(flat.data)
    return pieces


def read_frame(read_into: Callable[[memoryview], None]) -> Frame:
    """One frame; `read_into` fills the buffer it gets, or raises."""
    length = bytearray(_LENGTH.size)
    read_into(memoryview(length))
    (header_length,) = _LENGTH.unpack(length)
    if header_length > _LARGEST_HEADER:
        raise ValueError(f"a header of {header_length} bytes")
    header = bytearray(header_length)
    read_into(memoryview(header))
    document = read_json(header)
    arrays = []
    for described in document["arrays"]:
        array = aligned_array(tuple(described["shape"]), numpy_dtype(described["dtype"]))
        if array.size:
            read_into(array.reshape(-1).view(np.uint8).data)
        arrays.append(array)
    return Frame(document["message"], tuple(arrays))


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Uninitialised memory that compiled code may read with aligned loads."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
