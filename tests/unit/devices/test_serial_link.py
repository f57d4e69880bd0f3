"""Requests over a serial line on a machine that has no time for this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgekit.devices.serial import link as serial_link
from edgekit.devices.serial.frames import FrameDecoder, SerialFrame, encode_frame
from edgekit.devices.serial.link import Link, NoAnswer
from edgekit.devices.serial.messages import ANSWER, Request


class Board:
    """A port whose other end answers at once, or never."""

    def __init__(self, answers: bool) -> None:
        self._answers = answers
        self._waiting = b""

    def write(self, data: bytes) -> None:
        for frame in FrameDecoder().feed(data):
            assert isinstance(frame, SerialFrame)
            if self._answers:
                answer = SerialFrame(frame.kind | ANSWER, frame.sequence, b"well")
                self._waiting += encode_frame(answer)

    def flush(self) -> None:
        """Nothing waits."""

    def read(self, most: int) -> bytes:
        data, self._waiting = self._waiting[:most], self._waiting[most:]
        return data


@pytest.fixture(autouse=True)
def late_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a minute pass between two looks at the clock."""

    def minutes() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += 60.0

    clock = minutes()
    monkeypatch.setattr(serial_link.time, "monotonic", lambda: next(clock))


def test_an_answer_that_came_while_this_process_did_not_run_is_read() -> None:
    assert Link(Board(True), "wing", 115200).ask(Request.MEMORY, limit_s=1.0, expect=4) == b"well"


def test_a_board_that_says_nothing_is_given_up() -> None:
    with pytest.raises(NoAnswer, match="wing does not answer"):
        Link(Board(False), "wing", 115200).ask(Request.MEMORY, limit_s=1.0)
