"""The messages between edgekit and a process that runs a model: JSON, then arrays, over a pipe.

A frame is the length of its header (4 bytes, big endian), the header (JSON), and the bytes of the
arrays that the header lists, one after another. The process that runs the model imports this
module, so it needs only numpy.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.decode import Check, Count, decode_json, encode
from edgekit.base.tensors import DTYPES
from edgekit.base.wording import counted

ALIGNMENT = 64
"""Alignment in bytes. Compiled code uses aligned vector loads on its inputs."""

_LENGTH = struct.Struct(">I")
_LARGEST_HEADER = 64 << 20
_LARGEST_ARRAY = 64 << 30


class FrameError(ValueError):
    """The error for bytes that are not a frame; the message says why."""


@dataclass(frozen=True)
class Frame:
    message: Mapping[str, Any]
    arrays: tuple[Array, ...]


@dataclass(frozen=True)
class _ArrayHeader:
    dtype: Annotated[str, Check("the type of a tensor", DTYPES.__contains__)]
    shape: tuple[Count, ...]


@dataclass(frozen=True)
class _Header:
    message: Mapping[str, object]
    arrays: tuple[_ArrayHeader, ...]


def encode_frame(
    message: Mapping[str, object], arrays: Sequence[Array] = ()
) -> list[bytes | memoryview]:
    """Return the pieces to write, in order. Contiguous arrays are not copied."""
    described = tuple(_ArrayHeader(array.dtype.name, array.shape) for array in arrays)
    header = json.dumps(encode(_Header(message, described))).encode()
    pieces: list[bytes | memoryview] = [_LENGTH.pack(len(header)), header]
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if flat.size:
            pieces.append(flat.data)
    return pieces


def read_frame(read_into: Callable[[memoryview], None]) -> Frame:
    """Read one frame; `read_into` fills its buffer, or raises."""
    length = bytearray(_LENGTH.size)
    read_into(memoryview(length))
    (header_length,) = _LENGTH.unpack(length)
    if header_length > _LARGEST_HEADER:
        raise FrameError(f"a header of {counted(header_length, 'byte')}")
    header = bytearray(header_length)
    read_into(memoryview(header))
    message, described = _parsed(header)
    arrays = []
    for shape, dtype in described:
        array = aligned_array(shape, dtype)
        if array.size:
            read_into(array.reshape(-1).view(np.uint8).data)
        arrays.append(array)
    return Frame(message, tuple(arrays))


def _parsed(header: bytearray) -> tuple[dict[str, Any], list[tuple[tuple[int, ...], Any]]]:
    """Return the message, and the shape and type of each array."""
    try:
        found = decode_json(_Header, header)
    except ValueError as error:
        raise FrameError(str(error)) from error
    described = []
    for array in found.arrays:
        dtype = numpy_dtype(array.dtype)
        if math.prod(array.shape) * dtype.itemsize > _LARGEST_ARRAY:
            raise FrameError(f"an array of the shape {list(array.shape)}")
        described.append((array.shape, dtype))
    return dict(found.message), described


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Allocate uninitialised memory that compiled code may read with aligned loads."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
