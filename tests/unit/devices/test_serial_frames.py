"""Frames on a serial line: whatever comes, sound frames are found and nothing else is taken."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.devices.serial.frames import (
    LARGEST_PAYLOAD,
    FrameDecoder,
    Noise,
    SerialFrame,
    encode_frame,
    framed_length,
    stuffed,
    unstuffed,
)

_FRAMES = st.builds(
    SerialFrame,
    kind=st.integers(0, 255),
    sequence=st.integers(0, 2**32 - 1),
    payload=st.binary(max_size=LARGEST_PAYLOAD),
)


def frames_in(data: bytes, sizes: list[int] | None = None) -> list[SerialFrame]:
    decoder, found = FrameDecoder(), []
    for size in [*(sizes or []), len(data)]:
        found += decoder.feed(data[:size])
        data = data[size:]
    return [frame for frame in found if isinstance(frame, SerialFrame)]


@given(st.binary(max_size=2000))
def test_stuffing_leaves_no_zero_and_is_undone(data: bytes) -> None:
    assert b"\0" not in stuffed(data)
    assert unstuffed(stuffed(data)) == data


@given(st.binary(max_size=600))
def test_whatever_is_unstuffed_never_raises(data: bytes) -> None:
    found = unstuffed(data)
    assert found is None or len(found) <= len(data)


@given(st.lists(_FRAMES, max_size=5), st.lists(st.integers(0, 50), max_size=40))
def test_frames_survive_being_cut_anywhere(frames: list[SerialFrame], sizes: list[int]) -> None:
    assert frames_in(b"".join(map(encode_frame, frames)), sizes) == frames


@given(_FRAMES, st.binary(max_size=300), st.binary(max_size=300))
def test_noise_around_a_frame_does_not_hide_it(
    frame: SerialFrame, before: bytes, after: bytes
) -> None:
    assert frame in frames_in(before + encode_frame(frame) + after)


@given(_FRAMES, st.data())
def test_a_damaged_frame_is_no_frame(frame: SerialFrame, data: st.DataObject) -> None:
    message = bytearray(encode_frame(frame))
    place = data.draw(st.integers(1, len(message) - 2))
    message[place] ^= data.draw(st.integers(1, 255))
    assert frame not in frames_in(bytes(message))


@given(_FRAMES, st.data())
def test_a_frame_without_a_part_is_no_frame(frame: SerialFrame, data: st.DataObject) -> None:
    message = encode_frame(frame)
    start = data.draw(st.integers(1, len(message) - 2))
    end = data.draw(st.integers(start + 1, len(message) - 1))
    assert frame not in frames_in(message[:start] + message[end:])


@given(st.binary(max_size=4000))
def test_noise_alone_gives_noise_alone_or_frames_with_the_right_sum(data: bytes) -> None:
    for found in FrameDecoder().feed(data):
        if isinstance(found, SerialFrame):
            assert encode_frame(found)[1:-1] in data


def test_noise_without_an_end_does_not_fill_the_memory() -> None:
    decoder = FrameDecoder()
    kept = sum(
        len(found.data)
        for _ in range(100)
        for found in decoder.feed(b"x" * 1000)
        if isinstance(found, Noise)
    )
    assert 100_000 - kept <= 2000


def test_the_form_is_the_one_that_the_documentation_shows() -> None:
    body = bytes([1, 0x11, 0x05, 0x00, 0xCD, 0xAB, 4, 0, 0, 0, 0, 0])
    message = body + zlib.crc32(body).to_bytes(4, "little")
    assert encode_frame(SerialFrame(0x11, 0xABCD0005, bytes(4))) == b"\0" + stuffed(message) + b"\0"
    assert framed_length(4) == len(encode_frame(SerialFrame(0x11, 0xABCD0005, bytes(4))))


def test_a_frame_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="do not go into one frame"):
        encode_frame(SerialFrame(1, 1, bytes(LARGEST_PAYLOAD + 1)))
