"""Requests and answers over a line that loses, damages and repeats data."""

from __future__ import annotations

import secrets
import time
from typing import Any

from edgekit.base.errors import DeviceError
from edgekit.devices.serial.frames import FrameDecoder, SerialFrame, encode_frame, framed_length
from edgekit.devices.serial.messages import (
    ANSWER,
    FAULT,
    REFUSED,
    FaultReport,
    Refusal,
    Request,
    parse_fault,
)

_FIRST_PATIENCE = 0.4
_MOST_PATIENCE = 5.0
_BITS_A_BYTE = 10


class NoAnswer(DeviceError):
    """The error for an answer that did not come."""


class FirmwareFault(DeviceError):
    """The error for a core that stopped at an instruction it can't execute."""

    def __init__(self, port: str, report: FaultReport) -> None:
        super().__init__(
            f"the firmware on {port} has stopped with a fault",
            hint="edgekit flash writes it again",
        )
        self.fault = report


class BoardRestarted(DeviceError):
    """The error for a board that was reset and lost the session and its data."""


class Link:
    """One session. Every request has a number. An unanswered request is sent again, and the board
    does not repeat what it has done."""

    def __init__(self, port: Any, name: str, baud: int) -> None:
        self._port = port
        self._name = name
        self._baud = baud
        self._decoder = FrameDecoder()
        self._session = secrets.randbelow(0xFFFF) + 1
        self._count = 0
        self.retries = 0
        self.started = False

    def ask(
        self, kind: Request, payload: bytes = b"", *, limit_s: float = 10.0, expect: int = 0
    ) -> bytes:
        """Return the answer's payload, of about `expect` bytes; NoAnswer if none comes in time."""
        self._count = (self._count + 1) & 0xFFFF
        sequence = self._session << 16 | self._count
        message = encode_frame(SerialFrame(kind, sequence, payload))
        on_the_line = _BITS_A_BYTE * (len(message) + framed_length(expect)) / self._baud
        patience = _FIRST_PATIENCE + 2 * on_the_line
        ends_at = time.monotonic() + limit_s
        first = True
        while first or time.monotonic() < ends_at:
            self.retries += not first
            first = False
            self._send(message)
            until = min(time.monotonic() + patience, max(ends_at, time.monotonic() + on_the_line))
            answer = self._await(kind, sequence, until, framed_length(expect))
            if answer is not None:
                return answer
            patience = min(2 * patience, max(_MOST_PATIENCE, 2 * on_the_line))
        raise NoAnswer(
            f"{self._name} does not answer",
            hint="check its power and the port; if edgekit's firmware is not on it, "
            "edgekit flash writes it",
        )

    def _await(self, kind: Request, sequence: int, until: float, wanted: int) -> bytes | None:
        received, over = 0, False
        while not over:
            # The time is read before the line: bytes that came while this process did not run
            # count.
            over = time.monotonic() >= until
            data = self._receive(max(wanted - received, 1))
            received += len(data)
            for frame in self._decoder.feed(data):
                if isinstance(frame, SerialFrame):
                    answer = self._taken(frame, kind, sequence)
                    if answer is not None:
                        return answer
        return None

    def _taken(self, frame: SerialFrame, kind: Request, sequence: int) -> bytes | None:
        # Late answers to an earlier request are dropped. A fault is repeated for every request.
        if frame.sequence != sequence:
            return None
        if frame.kind == FAULT:
            try:
                raise FirmwareFault(self._name, parse_fault(frame.payload))
            except ValueError:
                return None
        if frame.kind == REFUSED and len(frame.payload) >= 2 and frame.payload[1] == kind:
            raise self._refused(frame.payload[0], kind)
        return frame.payload if frame.kind == kind | ANSWER else None

    def _refused(self, why: int, kind: Request) -> DeviceError:
        if why == Refusal.NO_SESSION:
            return BoardRestarted(
                f"{self._name} was reset while in use",
                hint="check its power supply and its watchdog",
            )
        reason = Refusal(why).name.lower() if why in set(Refusal) else str(why)
        return DeviceError(
            f"{self._name} refuses {kind.name.lower().replace('_', ' ')}: {reason}",
            hint="write a firmware that fits this version with edgekit flash",
        )

    def _send(self, message: bytes) -> None:
        import serial

        try:
            self._port.write(message)
            self._port.flush()
        except (serial.SerialException, OSError) as error:
            raise self._broken(error) from error

    def _receive(self, most: int) -> bytes:
        import serial

        try:
            return bytes(self._port.read(most))
        except (serial.SerialException, OSError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> DeviceError:
        return DeviceError(
            f"the line to {self._name} broke: {error}",
            hint="was it unplugged? plug it in and try again",
        )
