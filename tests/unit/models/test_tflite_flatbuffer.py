"""The reader of FlatBuffers follows no offset out of the file, and never runs for ever."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.models.tflite.flatbuffer import Buffer, DamagedBufferError, Table


def table_with(fields: bytes, offsets: list[int]) -> bytes:
    """A buffer whose root is one table with the given field offsets."""
    vtable = struct.pack("<HH", 4 + 2 * len(offsets), 4 + len(fields))
    vtable += b"".join(struct.pack("<H", offset) for offset in offsets)
    root = 4 + len(vtable)
    return struct.pack("<I", root) + vtable + struct.pack("<i", len(vtable)) + fields


def test_a_number_is_read_and_an_absent_one_is_its_default() -> None:
    root = Buffer(table_with(struct.pack("<i", 42), [4, 0])).root()
    assert root.number(0, "i") == 42
    assert root.number(1, "i", default=7) == 7
    assert root.number(9, "i", default=8) == 8


def test_text_is_read() -> None:
    fields = struct.pack("<I", 4) + struct.pack("<I", 5) + b"hello"
    assert Buffer(table_with(fields, [4])).root().text(0) == "hello"


@pytest.mark.parametrize("count", [2, 1000, 2**31, 2**32 - 1])
def test_a_list_longer_than_the_file_is_damaged(count: int) -> None:
    fields = struct.pack("<I", 4) + struct.pack("<I", count) + b"1234"
    root = Buffer(table_with(fields, [4])).root()
    with pytest.raises(DamagedBufferError, match="points at byte"):
        root.integers(0)
    with pytest.raises(DamagedBufferError):
        list(root.tables(0))


def test_a_table_whose_field_list_lies_before_the_file_is_damaged() -> None:
    with pytest.raises(DamagedBufferError):
        Table(Buffer(struct.pack("<Ii", 4, 100) + bytes(16)), 4)


def test_tables_that_contain_each_other_come_to_an_end() -> None:
    buffer = Buffer(table_with(struct.pack("<I", 4) + struct.pack("<I", 0), [4]))
    with pytest.raises(DamagedBufferError, match="contain each other"):
        while True:
            buffer.root()


@given(data=st.binary(max_size=200))
def test_any_bytes_end_in_values_or_damage(data: bytes) -> None:
    try:
        root = Buffer(data).root()
        for field in range(4):
            root.number(field, "q")
            root.text(field)
            root.integers(field)
            for child in root.tables(field):
                child.span(0)
    except DamagedBufferError as damage:
        assert str(damage)
