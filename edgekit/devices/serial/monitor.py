"""The traffic on a serial line for people: lines of text, and frames in words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from edgekit.base.errors import DeviceError
from edgekit.base.wording import clock_rate, counted
from edgekit.devices.device import HasLine
from edgekit.devices.serial.frames import FrameDecoder, Noise, SerialFrame, encode_frame
from edgekit.devices.serial.messages import (
    ANSWER,
    FAULT,
    REFUSED,
    Request,
    parse_fault,
    parse_hello,
)

_QUIET_SECONDS = 0.3
"""Silence after which an unfinished line is shown."""
_OUR_SESSION = 1 << 16


@dataclass(frozen=True)
class Seen:
    what: Literal["text", "frame", "fault", "noise"]
    words: str


def watch(device: HasLine, *, ask: bool = True, seconds: float | None = None) -> Iterator[Seen]:
    """Yield the traffic as it comes, for `seconds` or without end. With `ask`, ask what runs on the
    board."""
    import serial

    decoder = FrameDecoder()
    with device.held() as line, line.opened(device.baud) as port:
        # The time counts from now: the login to a remote host may take longer.
        ends_at = None if seconds is None else time.monotonic() + seconds
        try:
            if ask:
                port.write(encode_frame(SerialFrame(Request.HELLO, _OUR_SESSION, b"")))
            heard = time.monotonic()
            while ends_at is None or time.monotonic() < ends_at:
                data = port.read(max(port.in_waiting, 1))
                if data:
                    heard = time.monotonic()
                    for piece in decoder.feed(data):
                        yield from seen(piece)
                elif time.monotonic() - heard > _QUIET_SECONDS:
                    rest = decoder.rest()
                    if rest:
                        yield from seen(Noise(rest))
        except (serial.SerialException, OSError) as error:
            yield from seen(Noise(decoder.rest()))
            raise DeviceError(
                f"the line to {device.name} broke: {error}",
                hint="was it unplugged? plug it in and try again",
            ) from error


def seen(piece: SerialFrame | Noise) -> Iterator[Seen]:
    if isinstance(piece, SerialFrame):
        yield Seen("fault" if piece.kind == FAULT else "frame", _frame_in_words(piece))
        return
    text = piece.data.decode("utf-8", errors="replace")
    printable = sum(c.isprintable() or c in "\r\n\t" for c in text if c != "�")
    if printable < 0.9 * len(text):
        yield Seen("noise", f"{counted(len(piece.data), 'byte')} that are not a frame")
        return
    for line in text.splitlines():
        if line.strip():
            yield Seen("text", "".join(c if c.isprintable() else " " for c in line).rstrip())


def _frame_in_words(frame: SerialFrame) -> str:
    try:
        if frame.kind == FAULT:
            report = parse_fault(frame.payload)
            place = "unknown" if report.pc is None else f"{report.pc:#010x}"
            return f"fault at pc {place}, cfsr {report.cfsr:#010x}, hfsr {report.hfsr:#010x}"
        if frame.kind == Request.HELLO | ANSWER:
            hello = parse_hello(frame.payload)
            models = counted(hello.models, "model")
            return (
                f"edgekit's firmware {hello.build_id[:12]} on a {hello.core} at "
                f"{clock_rate(hello.clock)}, {models}"
            )
    except ValueError:
        return f"frame of kind {frame.kind:#04x} that is invalid"
    if frame.kind == REFUSED:
        return "refused"
    name = _KINDS.get(frame.kind & ~ANSWER, f"kind {frame.kind:#04x}")
    what = "answer to" if frame.kind & ANSWER else "request"
    return f"{what} {name}, {counted(len(frame.payload), 'byte')}"


_KINDS = {int(kind): kind.name.lower().replace("_", " ") for kind in Request}
