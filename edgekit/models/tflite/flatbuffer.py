"""Read FlatBuffers without trusting them: every offset is checked before it is followed.

The generated accessors follow any offset; a damaged or hostile file makes them read nonsense, loop,
or pass wild numbers to native code. This reader knows only the wire format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

MAX_OVERLAP = 8
"""How often a valid file may be read over; parts that contain each other read far more."""


class DamagedBufferError(Exception):
    """Raised if the bytes are not a valid FlatBuffer."""


class Buffer:
    """The bytes of one file, and how many more of them may be read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._allowance = MAX_OVERLAP * len(data) + 1024

    def number(self, form: str, position: int) -> int:
        size = struct.calcsize("<" + form)
        self.check(position, size)
        value = struct.unpack_from("<" + form, self.data, position)[0]
        return int(value)

    def numbers(self, form: str, position: int, count: int) -> tuple[float, ...]:
        self.check(position, count * struct.calcsize("<" + form))
        return struct.unpack_from(f"<{count}{form}", self.data, position)

    def check(self, position: int, size: int) -> None:
        """Check that the bytes lie inside the file, and that the file is not read over and over."""
        if position < 0 or size < 0 or position + size > len(self.data):
            raise DamagedBufferError(
                f"it points at byte {position + size}, but has only {len(self.data)}"
            )
        self._allowance -= size
        if self._allowance < 0:
            raise DamagedBufferError("its parts contain each other")

    def skip(self, position: int, size: int) -> None:
        """Check bytes that are located but not read, such as weights."""
        self.check(position, 0)
        self.check(position + size, 0)

    def root(self) -> Table:
        return Table(self, self.number("I", 0))


class Table:
    """One table, with fields by their number in the schema; absent fields are None."""

    def __init__(self, buffer: Buffer, position: int) -> None:
        self._buffer = buffer
        self._position = position
        self._vtable = position - buffer.number("i", position)
        self._vtable_size = buffer.number("H", self._vtable)
        table_size = buffer.number("H", self._vtable + 2)
        if self._vtable_size < 4 or self._vtable_size % 2:
            raise DamagedBufferError(f"the table at byte {position} has no valid field list")
        buffer.check(self._vtable, self._vtable_size)
        buffer.check(position, table_size)

    def _field(self, number: int) -> int | None:
        entry = 4 + 2 * number
        if entry + 2 > self._vtable_size:
            return None
        offset = self._buffer.number("H", self._vtable + entry)
        return self._position + offset if offset else None

    def place_of(self, field: int) -> int | None:
        """Return the place of a field in the file; None if the table has none."""
        return self._field(field)

    def _target(self, number: int) -> int | None:
        field = self._field(number)
        return None if field is None else field + self._buffer.number("I", field)

    def number(self, field: int, form: str, default: int = 0) -> int:
        position = self._field(field)
        return default if position is None else self._buffer.number(form, position)

    def table(self, field: int) -> Table | None:
        position = self._target(field)
        return None if position is None else Table(self._buffer, position)

    def tables(self, field: int) -> Iterator[Table]:
        start = self._target(field)
        if start is None:
            return
        count = self._buffer.number("I", start)
        self._buffer.check(start + 4, 4 * count)
        for entry in range(start + 4, start + 4 + 4 * count, 4):
            yield Table(self._buffer, entry + self._buffer.number("I", entry))

    def numbers(self, field: int, form: str) -> tuple[float, ...] | None:
        start = self._target(field)
        if start is None:
            return None
        return self._buffer.numbers(form, start + 4, self._buffer.number("I", start))

    def integers(self, field: int, form: str = "i") -> tuple[int, ...]:
        return tuple(int(value) for value in self.numbers(field, form) or ())

    def text(self, field: int) -> str | None:
        start = self._target(field)
        if start is None:
            return None
        size = self._buffer.number("I", start)
        self._buffer.check(start + 4, size)
        return self._buffer.data[start + 4 : start + 4 + size].decode("utf-8", "replace")

    def span(self, field: int) -> tuple[int, int] | None:
        """Return the offset and size of a byte vector, without reading it."""
        start = self._target(field)
        if start is None:
            return None
        size = self._buffer.number("I", start)
        self._buffer.skip(start + 4, size)
        return start + 4, size
