"""numpy's files are read as numpy reads them; what is none is refused before memory is taken."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgekit.base.npy import NpyError, open_npz, read_npy, read_npy_header

DTYPES = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="?"),
    arrays.unsigned_integer_dtypes(endianness="?"),
    arrays.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)


@given(arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, min_side=0)), st.booleans())
def test_what_numpy_writes_is_read_as_it_was(array: np.ndarray[Any, Any], fortran: bool) -> None:
    stream = io.BytesIO()
    array = np.asfortranarray(array) if fortran else array
    np.save(stream, array)
    stream.seek(0)

    found = read_npy(stream)

    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable


def data(header: str, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header.encode() + content


def described(descr: str = "'<f4'", order: str = "False", shape: str = "(1,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def test_headers_of_other_writers_are_read() -> None:
    header = '{"shape":(2,3),"fortran_order":True , "descr":"<f4"}\n'
    found = read_npy(io.BytesIO(data(header, np.arange(6, dtype="<f4").tobytes())))
    assert found.tolist() == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\x93NUMPY",
        data(described(), version=b"\7\0"),
        data(described(), b"abc"),
        data(described(shape="(1000000000000,)"), b"abcd"),
        data(described(shape="(9999999999999999999,9999999999999999999)"), b"abcd"),
        data(described(shape="(-1,)"), b"abcd"),
        data(described(shape="(1)"), b"abcd"),
        data(described(shape="1"), b"abcd"),
        data(described(shape="(1," * 30), b"abcd"),
        data(described(shape="(" + "1," * 40 + ")"), b"abcd"),
        data(described(shape="(1.0,)"), b"abcd"),
        data(described(descr="'|O'"), b"abcd"),
        data(described(descr="'<f3'"), b"abcd"),
        data(described(descr="'V0'"), b"abcd"),
        data(described(descr="'<U999999999'"), b"abcd"),
        data(described(descr="[('a', '<f4')]"), b"abcd"),
        data(described(descr="__import__('os')"), b"abcd"),
        data(described(order="0"), b"abcd"),
        data(described(order="True or True"), b"abcd"),
        data(described() + "x", b"abcd"),
        data("{" * 5000, b"abcd"),
        data("(" * 9000, b"abcd"),
        data(described().replace("}", "'shape': (1,), }"), b"abcd"),
        data("{}", b"abcd"),
        data("{'shape': (1,)}", b"abcd"),
        data("x" * 20_000, b"abcd"),
    ],
)
def test_what_is_no_array_is_refused(broken: bytes) -> None:
    with pytest.raises(NpyError):
        read_npy(io.BytesIO(broken))


@given(st.data())
def test_damage_is_an_npy_error_and_nothing_else(draw: st.DataObject) -> None:
    stream = io.BytesIO()
    np.save(stream, np.arange(12, dtype="float32").reshape(3, 4))
    changed = bytearray(stream.getvalue())
    for position in draw.draw(st.lists(st.integers(0, len(changed) - 1), min_size=1, max_size=4)):
        changed[position] = draw.draw(st.integers(0, 255))
    with suppress(NpyError):
        read_npy(io.BytesIO(bytes(changed)))


def test_an_archive_gives_headers_before_values(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(9.0), y=np.zeros((2, 1), "int8"))

    with open_npz(tmp_path / "a.npz") as found:
        assert found.keys() == {"x", "y"}
        assert found["y"].header().shape == (2, 1)
        assert found["x"].read().tolist() == list(range(9))
        assert read_npy_header(io.BytesIO(data(described()))).shape == (1,)
