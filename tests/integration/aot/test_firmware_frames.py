"""The firmware's half of the line protocol, compiled for this machine, beside Python's half."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples

from edgekit.aot.firmware import build
from edgekit.devices.serial.frames import LARGEST_PAYLOAD, FrameDecoder, SerialFrame, encode_frame

_SOURCE = Path(build.__file__).parent / "source"
_STUB = """
#include "frame.h"
uint8_t written[4096];
uint32_t written_count;
void board_write(uint8_t byte) { written[written_count++] = byte; }
void send(uint8_t kind, uint32_t sequence, const uint8_t *payload, uint32_t length) {
  written_count = 0;
  frame_begin(kind, sequence, length);
  frame_add(payload, length / 2u);
  frame_add(payload + length / 2u, length - length / 2u);
  frame_end();
}
"""
_FRAMES = st.builds(
    SerialFrame,
    kind=st.integers(0, 255),
    sequence=st.integers(0, 2**32 - 1),
    payload=st.binary(max_size=LARGEST_PAYLOAD)
    | st.integers(0, LARGEST_PAYLOAD).map(bytes)
    | st.integers(0, LARGEST_PAYLOAD).map(lambda count: b"\x01" * count),
)
_RUNS = settings(
    max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class _Frame(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint8),
        ("sequence", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("payload", ctypes.POINTER(ctypes.c_uint8)),
    ]


class Firmware:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def taken(self, data: bytes) -> list[SerialFrame]:
        frame, found = _Frame(), []
        for byte in data:
            if self._library.frame_take(ctypes.c_uint8(byte), ctypes.byref(frame)):
                payload = ctypes.string_at(frame.payload, frame.length)
                found.append(SerialFrame(frame.kind, frame.sequence, payload))
        return found

    def sent(self, frame: SerialFrame) -> bytes:
        self._library.send(
            ctypes.c_uint8(frame.kind),
            ctypes.c_uint32(frame.sequence),
            frame.payload,
            ctypes.c_uint32(len(frame.payload)),
        )
        count = ctypes.c_uint32.in_dll(self._library, "written_count").value
        return bytes((ctypes.c_uint8 * 4096).in_dll(self._library, "written"))[:count]


@pytest.fixture(scope="module")
def firmware(tmp_path_factory: pytest.TempPathFactory) -> Firmware:
    folder = tmp_path_factory.mktemp("frames")
    (folder / "config.h").write_text("")
    (folder / "stub.c").write_text(_STUB)
    # Out of bounds ends the process at once, without a run-time library that Python would need.
    careful = ("-fsanitize=undefined,bounds-strict", "-fsanitize-undefined-trap-on-error")
    strict = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", *careful)
    sources = (str(_SOURCE / "frame.c"), str(folder / "stub.c"))
    library = folder / "frames.so"
    command = ["cc", "-shared", "-fPIC", *strict, f"-I{folder}", f"-I{_SOURCE}", *sources]
    subprocess.run([*command, "-o", str(library)], check=True)
    return Firmware(ctypes.CDLL(str(library)))


def _in_python(data: bytes) -> list[SerialFrame]:
    return [found for found in FrameDecoder().feed(data) if isinstance(found, SerialFrame)]


@_RUNS
@given(frame=_FRAMES)
def test_both_sides_write_the_same_bytes(firmware: Firmware, frame: SerialFrame) -> None:
    assert firmware.sent(frame) == encode_frame(frame)


@_RUNS
@given(frames=st.lists(_FRAMES, max_size=4))
def test_the_firmware_takes_what_the_host_sends(
    firmware: Firmware, frames: list[SerialFrame]
) -> None:
    assert firmware.taken(b"\0" + b"".join(map(encode_frame, frames))) == frames


@_RUNS
@given(
    pieces=st.lists(
        st.binary(max_size=400) | _FRAMES.map(encode_frame) | st.just(b"\xff" * 3000), max_size=6
    ),
    cut=st.integers(0, 50),
)
def test_both_sides_find_the_same_frames_in_noise(
    firmware: Firmware, pieces: list[bytes], cut: int
) -> None:
    data = b"\0" + b"".join(piece[: max(len(piece) - cut, 0)] for piece in pieces) + b"\0"
    assert firmware.taken(data) == _in_python(data)


@_RUNS
@given(frame=_FRAMES, place=st.floats(0, 1), flip=st.integers(1, 255))
def test_a_damaged_frame_is_taken_by_neither(
    firmware: Firmware, frame: SerialFrame, place: float, flip: int
) -> None:
    message = bytearray(encode_frame(frame))
    message[1 + round(place * (len(message) - 3))] ^= flip
    assert frame not in firmware.taken(b"\0" + bytes(message) + b"\0")
