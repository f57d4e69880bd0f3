"""numpy arrays of every dtype as DLPack tensors; numpy's own DLPack refuses some. The layout is
that of DLPack's C header."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from edgekit.base.arrays import Array

_CPU = 1
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT16_CODE = 4


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _ManagedTensor(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_lent: dict[int, DlpackArray] = {}
"""Arrays that a consumer holds, by the address it was given. TVM's virtual machine keeps the inputs
of a call until the next one."""


def _forget(address: int) -> None:
    del _lent[address]


_release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_forget)


class DlpackArray:
    """Lends a contiguous array to one consumer, and lives as long as the consumer's tensor."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self._shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        self._strides = (ctypes.c_int64 * max(array.ndim, 1))(*_strides(array.shape))
        code = _BFLOAT16_CODE if array.dtype.name == "bfloat16" else _CODES[array.dtype.kind]
        self._managed = _ManagedTensor()
        tensor = self._managed.tensor
        tensor.data = array.ctypes.data
        tensor.device = _Device(_CPU, 0)
        tensor.ndim = array.ndim
        tensor.dtype = _DataType(code, array.dtype.itemsize * 8, 1)
        tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0

    def __dlpack__(self, **_: Any) -> object:
        address = ctypes.addressof(self._managed)
        self._managed.deleter = ctypes.cast(_release, ctypes.c_void_p)
        _lent[address] = self
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        capsule: object = new_capsule(address, b"dltensor", None)
        return capsule


def _strides(shape: Sequence[int]) -> list[int]:
    """Return compact strides, which TVM's kernels demand. numpy's differ for an empty array."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    return strides
