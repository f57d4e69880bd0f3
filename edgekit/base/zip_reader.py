"""Reads an untrusted zip file, and only one that every reader reads alike.

A zip file describes itself twice: in the directory at its end and in front of each member. Readers
differ in which they believe, in which of two members of one name they take, in where they look for
the directory. This one only takes unambiguous files: members follow each other without gaps from
the first byte to the directory, both descriptions agree, every name is plain and unique, none is a
link or a device, and the directory ends the file.
"""

from __future__ import annotations

import stat
import struct
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END_64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR_64 = struct.Struct("<4sIQI")
_STORED, _DEFLATED = 0, 8
_HAS_DESCRIPTOR, _IS_UTF8 = 1 << 3, 1 << 11
_COMPRESSION_FLAGS = 0b110
_NAME_FIELD, _ZIP64_FIELD = 0x7075, 0x0001
_ALL_ONES, _ALL_ONES_16 = 0xFFFFFFFF, 0xFFFF
_MOST_MEMBERS = 100_000
_LARGEST_DIRECTORY = 64 << 20
_SMALL = 64 << 20
_MOST_EXPANSION = 100
_BLOCK = 1 << 20


class ZipError(ValueError):
    """The data is not a zip file that edgekit reads; the message says why."""


@dataclass(frozen=True)
class ZipMember:
    """One file in a zip file, as both of its descriptions say."""

    name: str
    size: int
    _crc: int
    _method: int
    _packed_size: int
    _start: int
    """The offset of its data."""
    _stream: BinaryIO

    def blocks(self) -> Iterator[bytes]:
        """Read its content piece by piece; ZipError if it does not match its description."""
        self._stream.seek(self._start)
        crc, size = 0, 0
        for block in self._unpacked():
            crc, size = zlib.crc32(block, crc), size + len(block)
            if size > self.size:
                break
            yield block
        if size != self.size or crc != self._crc:
            raise ZipError(f"{_shown(self.name)} is not what its checksum says")

    def read(self) -> bytes:
        """Read its whole content."""
        return b"".join(self.blocks())

    def read_first(self, size: int) -> bytes:
        """Read the beginning of its content, unchecked."""
        found = b""
        for block in self._unpacked():
            found += block[: size - len(found)]
            if len(found) == size:
                break
        return found

    def _unpacked(self) -> Iterator[bytes]:
        left = self._packed_size
        decoder = zlib.decompressobj(-zlib.MAX_WBITS) if self._method == _DEFLATED else None
        while left:
            position = self._start + self._packed_size - left
            self._stream.seek(position)
            packed = self._stream.read(min(_BLOCK, left))
            if not packed:
                raise ZipError(f"{_shown(self.name)} is cut off")
            left -= len(packed)
            if decoder is None:
                yield packed
                continue
            try:
                while packed:
                    yield decoder.decompress(packed, _BLOCK)
                    packed = decoder.unconsumed_tail
                    if decoder.unused_data:
                        raise ZipError(f"{_shown(self.name)} has data after its end")
            except zlib.error as error:
                raise ZipError(f"{_shown(self.name)} is damaged: {error}") from error
        if decoder is not None and not decoder.eof:
            raise ZipError(f"{_shown(self.name)} is cut off")


def read_zip(
    stream: BinaryIO, *, most_expansion: int | None = _MOST_EXPANSION
) -> Mapping[str, ZipMember]:
    """List the files in a zip file; ZipError for one that two readers may read differently.

    Above 64 MiB it may unpack to at most `most_expansion` times its own size.
    """
    size = stream.seek(0, 2)
    directory, entries = _directory(stream, size)
    members: dict[str, ZipMember] = {}
    spellings: dict[str, str] = {}
    position = total = 0
    for name, entry in entries:
        alike = spellings.setdefault(spelling(name), name)
        if alike != name or name in members:
            raise ZipError(f"it holds {_shown(name)} twice")
        if entry.offset != position:
            raise ZipError(f"{_shown(name)} does not begin where the member before it ends")
        start = _checked_local(stream, name, entry)
        position = start + entry.packed_size
        position += _descriptor(stream, position, name, entry)
        total += entry.size
        members[name] = ZipMember(
            name, entry.size, entry.crc, entry.method, entry.packed_size, start, stream
        )
    if position != directory:
        raise ZipError("it holds data that belongs to no member")
    if most_expansion is not None and total > max(_SMALL, most_expansion * size):
        raise ZipError(
            f"it would unpack to {total} bytes, more than {most_expansion} times its size"
        )
    files = {name: found for name, found in members.items() if not name.endswith("/")}
    _refuse_files_as_folders(files)
    return files


@dataclass(frozen=True)
class _Entry:
    """One entry of the directory."""

    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed_size: int
    size: int
    offset: int


def _directory(stream: BinaryIO, size: int) -> tuple[int, list[tuple[str, _Entry]]]:
    """Return the offset of the directory, and its entries in the order of their data."""
    if size < _END.size:
        raise ZipError("it is too short")
    magic, disk, first_disk, here, count, length, offset, comment = _END.unpack(
        _bytes(stream, size - _END.size, _END.size)
    )
    if magic != b"PK\5\6" or comment:
        raise ZipError("it does not end as a whole zip file ends")
    if disk or first_disk or here != count:
        raise ZipError("it is a part of several files")
    end = size - _END.size
    wide = _zip64_end(stream, end)
    if wide is not None:
        narrow = (count, length, offset)
        for given, real, ones in zip(
            narrow, wide[1:], (_ALL_ONES_16, _ALL_ONES, _ALL_ONES), strict=True
        ):
            if given not in (real, ones):
                raise ZipError("its two ends disagree")
        end, count, length, offset = wide
    if count > _MOST_MEMBERS or length > _LARGEST_DIRECTORY:
        raise ZipError(f"it holds {count} members")
    if offset + length != end:
        raise ZipError("its directory is not where its end says")
    entries = list(_entries(_bytes(stream, offset, length), count))
    return offset, sorted(entries, key=lambda entry: entry[1].offset)


def _zip64_end(stream: BinaryIO, end: int) -> tuple[int, int, int, int] | None:
    """Read the end, number of entries, length and offset of the directory from the wide end."""
    if end < _LOCATOR_64.size + _END_64.size:
        return None
    at = end - _LOCATOR_64.size
    magic, disk, offset, disks = _LOCATOR_64.unpack(_bytes(stream, at, _LOCATOR_64.size))
    if magic != b"PK\6\7":
        return None
    if disk or disks != 1 or offset != at - _END_64.size:
        raise ZipError("its two ends disagree")
    magic, length, _, _, disk, first, here, count, size, start = _END_64.unpack(
        _bytes(stream, offset, _END_64.size)
    )
    if magic != b"PK\6\6" or length != _END_64.size - 12 or disk or first or here != count:
        raise ZipError("its two ends disagree")
    return offset, count, size, start


def _entries(data: bytes, count: int) -> Iterator[tuple[str, _Entry]]:
    position = 0
    for _ in range(count):
        if position + _CENTRAL.size > len(data):
            raise ZipError("its directory is cut off")
        (magic, _, _, flags, method, _, _, crc, packed, size, *rest) = _CENTRAL.unpack_from(
            data, position
        )
        *lengths, disk, _, attributes, offset = rest
        position += _CENTRAL.size
        name, extra, comment = lengths
        ends = position + name + extra + comment
        if magic != b"PK\1\2" or disk or ends > len(data):
            raise ZipError("its directory is damaged")
        raw = data[position : position + name]
        fields = _extra_fields(data[position + name : position + name + extra])
        size, packed, offset = _widened(fields, (size, packed, offset))
        position = ends
        decoded = _checked_name(raw, flags)
        _check_storing(decoded, flags, method, packed, size)
        _check_kind(decoded, stat.S_IFMT(attributes >> 16))
        yield decoded, _Entry(raw, flags, method, crc, packed, size, offset)
    if position != len(data):
        raise ZipError("its directory holds more than its entries")


def _check_kind(name: str, kind: int) -> None:
    """Refuse links and other members that programs unpack in different ways."""
    if kind not in (0, stat.S_IFDIR if name.endswith("/") else stat.S_IFREG):
        raise ZipError(f"{_shown(name)} is a link or a device, or a folder under a file's name")


def _check_storing(name: str, flags: int, method: int, packed: int, size: int) -> None:
    if flags & ~(_HAS_DESCRIPTOR | _IS_UTF8 | _COMPRESSION_FLAGS):
        raise ZipError(f"{_shown(name)} is encrypted or stored in a way that edgekit does not read")
    if method not in (_STORED, _DEFLATED) or (method == _STORED and packed != size):
        raise ZipError(f"{_shown(name)} is stored in a way that edgekit does not read")
    if name.endswith("/") and size:
        raise ZipError(f"{_shown(name)} is a folder with data in it")


def _checked_local(stream: BinaryIO, name: str, entry: _Entry) -> int:
    """Return the offset of a member's data. Its own description must equal the directory's."""
    data = _bytes(stream, entry.offset, _LOCAL.size)
    magic, _, flags, method, _, _, crc, packed, size, name_size, extra_size = _LOCAL.unpack(data)
    rest = _bytes(stream, entry.offset + _LOCAL.size, name_size + extra_size)
    size, packed = _widened(_extra_fields(rest[name_size:]), (size, packed))
    same = (magic, flags, method, rest[:name_size]) == (
        b"PK\3\4",
        entry.flags,
        entry.method,
        entry.raw_name,
    )
    described = (crc, packed, size)
    later = bool(flags & _HAS_DESCRIPTOR) and described == (0, 0, 0)
    if not same or (described != (entry.crc, entry.packed_size, entry.size) and not later):
        raise ZipError(f"{_shown(name)} is described in two ways")
    return entry.offset + _LOCAL.size + int(name_size) + int(extra_size)


def _descriptor(stream: BinaryIO, position: int, name: str, entry: _Entry) -> int:
    """Return the length of the descriptor that follows a member's data and repeats its sizes."""
    if not entry.flags & _HAS_DESCRIPTOR:
        return 0
    for sizes in ("II", "QQ"):
        for magic in (b"PK\7\x08", b""):
            try:
                expected = magic + struct.pack(
                    f"<I{sizes}", entry.crc, entry.packed_size, entry.size
                )
            except struct.error:
                continue
            stream.seek(position)
            if stream.read(len(expected)) == expected and _begins_a_record(stream):
                return len(expected)
    raise ZipError(f"{_shown(name)} is described in two ways")


def _begins_a_record(stream: BinaryIO) -> bool:
    return stream.read(2) == b"PK"


def _extra_fields(data: bytes) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    position = 0
    while position < len(data):
        if position + 4 > len(data):
            raise ZipError("it has a damaged extra field")
        kind, size = struct.unpack_from("<HH", data, position)
        position += 4
        if position + size > len(data) or kind in fields or kind == _NAME_FIELD:
            raise ZipError("it has an extra field that readers take differently")
        fields[kind] = data[position : position + size]
        position += size
    return fields


def _widened(fields: Mapping[int, bytes], values: tuple[int, ...]) -> tuple[int, ...]:
    """Return the values, taking those that 32 bits can't hold from the wide field."""
    wide = fields.get(_ZIP64_FIELD, b"")
    found = []
    for value in values:
        if value == _ALL_ONES:
            if len(wide) < 8:
                raise ZipError("it lacks a size that its directory announces")
            (value,) = struct.unpack_from("<Q", wide)
            wide = wide[8:]
        found.append(value)
    if wide:
        raise ZipError("it gives a size in two ways")
    return tuple(found)


def _checked_name(raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & _IS_UTF8 else "ascii")
    except UnicodeDecodeError as error:
        raise ZipError(f"it holds a name that is no text: {_shown(repr(raw))}") from error
    parts = name.removesuffix("/").split("/")
    if any(part in ("", ".", "..") for part in parts) or not name.isprintable() or "\\" in name:
        raise ZipError(f"it holds a name that is no plain path: {_shown(name)}")
    return name


def spelling(name: str) -> str:
    """Return the same text for names that some reader or file system takes for the same name."""
    return unicodedata.normalize("NFKC", name.removesuffix("/")).casefold()


def _refuse_files_as_folders(files: Mapping[str, ZipMember]) -> None:
    for name in files:
        parts = name.split("/")
        for length in range(1, len(parts)):
            if "/".join(parts[:length]) in files:
                raise ZipError(f"it holds {_shown(name)} below a file")


def _bytes(stream: BinaryIO, position: int, length: int) -> bytes:
    try:
        stream.seek(position)
        data = stream.read(length)
    except (OverflowError, ValueError) as error:
        raise ZipError("it points to where no file reaches") from error
    if len(data) != length:
        raise ZipError("it is cut off")
    return data


def _shown(name: str) -> str:
    return ascii(name)[:80]
