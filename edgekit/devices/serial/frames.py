"""The frames of docs/serial-protocol.md: bytes to frames and back.

A frame is stuffed so that it holds no zero, and stands between zeros, so that the next frame is
found after any noise.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from edgekit.base.wording import counted

VERSION = 1
LARGEST_PAYLOAD = 1024
_HEADER = struct.Struct("<BBIH")
_CRC = struct.Struct("<I")
_LONGEST = _HEADER.size + LARGEST_PAYLOAD + _CRC.size
_LONGEST_STUFFED = _LONGEST + _LONGEST // 254 + 1
_FULL_BLOCK = 0xFF


@dataclass(frozen=True)
class SerialFrame:
    kind: int
    sequence: int
    payload: bytes


@dataclass(frozen=True)
class Noise:
    """Bytes that are not a frame: a boot loader's output, or the rest of a damaged frame."""

    data: bytes


def encode_frame(frame: SerialFrame) -> bytes:
    if len(frame.payload) > LARGEST_PAYLOAD:
        raise ValueError(f"{counted(len(frame.payload), 'byte')} do not go into one frame")
    body = _HEADER.pack(VERSION, frame.kind, frame.sequence, len(frame.payload)) + frame.payload
    return b"\0" + stuffed(body + _CRC.pack(zlib.crc32(body))) + b"\0"


def framed_length(payload: int) -> int:
    """Return the fewest bytes that a frame with so much payload takes on the line."""
    return _HEADER.size + payload + _CRC.size + 3


class FrameDecoder:
    """Decodes bytes in pieces of any size."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[SerialFrame | Noise]:
        """Return the frames that are now complete."""
        found: list[SerialFrame | Noise] = []
        *ended, rest = data.split(b"\0")
        for piece in ended:
            self._pending += piece
            if self._pending:
                found.append(_decoded(bytes(self._pending)))
            self._pending.clear()
        self._pending += rest
        found += self._overflow()
        return found

    def rest(self) -> bytes:
        """Return the bytes after the latest frame, and keep them out of the next one."""
        pending = bytes(self._pending)
        self._pending.clear()
        return pending

    def _overflow(self) -> list[SerialFrame | Noise]:
        """Drop what is longer than any frame: endless noise must not fill the memory."""
        if len(self._pending) <= _LONGEST_STUFFED:
            return []
        return [Noise(self.rest())]


def stuffed(data: bytes) -> bytes:
    """Encode without zeros, by consistent overhead byte stuffing."""
    out = bytearray()
    for piece in data.split(b"\0"):
        start = 0
        while len(piece) - start >= _FULL_BLOCK - 1:
            out.append(_FULL_BLOCK)
            out += piece[start : start + _FULL_BLOCK - 1]
            start += _FULL_BLOCK - 1
        out.append(len(piece) - start + 1)
        out += piece[start:]
    return bytes(out)


def unstuffed(data: bytes) -> bytes | None:
    """Decode what `stuffed` returns; None for anything else."""
    out = bytearray()
    position = 0
    while position < len(data):
        code = data[position]
        block = data[position + 1 : position + code]
        if code == 0 or len(block) != code - 1 or b"\0" in block:
            return None
        out += block
        position += code
        if code != _FULL_BLOCK and position < len(data):
            out.append(0)
    return bytes(out)


def _decoded(piece: bytes) -> SerialFrame | Noise:
    body = unstuffed(piece) if len(piece) <= _LONGEST_STUFFED else None
    if body is None or len(body) < _HEADER.size + _CRC.size:
        return Noise(piece)
    content, (crc,) = body[: -_CRC.size], _CRC.unpack(body[-_CRC.size :])
    version, kind, sequence, length = _HEADER.unpack_from(content)
    payload = content[_HEADER.size :]
    if version != VERSION or length != len(payload) or crc != zlib.crc32(content):
        return Noise(piece)
    return SerialFrame(kind, sequence, payload)
