"""Python calls to edgekit's firmware on a microcontroller."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from edgekit.base.errors import DeviceError
from edgekit.devices.serial.link import FirmwareFault, Link
from edgekit.devices.serial.messages import (
    Hello,
    Inference,
    MemoryMarks,
    ModelOnBoard,
    Request,
    TensorOnBoard,
    parse_hello,
    parse_inference,
    parse_memory,
    parse_model,
    parse_tensor,
    parse_text,
)

T = TypeVar("T")

_OVERHEAD = 12
"""Bytes before each piece of an input: model, tensor, offset."""


class Client:
    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._name = name
        self._piece = 256

    @property
    def retries(self) -> int:
        return self._link.retries

    def hello(self, limit_s: float = 3.0) -> Hello:
        """Begin a session. A board left in a fault by an earlier session is reset."""
        try:
            answer = self._link.ask(Request.HELLO, limit_s=limit_s, expect=48)
        except FirmwareFault:
            self.reset()
            answer = self._link.ask(Request.HELLO, limit_s=limit_s, expect=48)
        hello = self._parsed(parse_hello, answer)
        self._piece = min(hello.payload, 1024) - _OVERHEAD
        return hello

    def reset(self) -> None:
        self._link.ask(Request.RESET)

    def model(self, index: int) -> ModelOnBoard:
        answer = self._link.ask(Request.MODEL, struct.pack("<I", index), expect=24)
        return self._parsed(parse_model, answer)

    def tensor(self, model: int, index: int, *, output: bool) -> TensorOnBoard:
        words = struct.pack("<III", model, index, output)
        return self._parsed(parse_tensor, self._link.ask(Request.TENSOR, words, expect=4))

    def step_name(self, model: int, step: int) -> str:
        return parse_text(self._link.ask(Request.STEP_NAME, struct.pack("<II", model, step)))

    def memory(self) -> MemoryMarks:
        return self._parsed(parse_memory, self._link.ask(Request.MEMORY, expect=12))

    def write(self, model: int, index: int, data: bytes) -> None:
        for offset in range(0, len(data), self._piece):
            words = struct.pack("<III", model, index, offset)
            self._link.ask(Request.WRITE, words + data[offset : offset + self._piece])

    def run(self, model: int, limit_s: float) -> Inference:
        answer = self._link.ask(Request.RUN, struct.pack("<I", model), limit_s=limit_s, expect=12)
        return self._parsed(parse_inference, answer)

    def run_step(self, model: int, step: int, limit_s: float) -> Inference:
        answer = self._link.ask(
            Request.RUN_STEP, struct.pack("<II", model, step), limit_s=limit_s, expect=12
        )
        return self._parsed(parse_inference, answer)

    def read(self, model: int, index: int, count: int) -> bytes:
        data = b""
        while len(data) < count:
            size = min(self._piece, count - len(data))
            words = struct.pack("<IIII", model, index, len(data), size)
            piece = self._link.ask(Request.READ, words, expect=size)
            if len(piece) != size:
                raise self._senseless("too few bytes of an output")
            data += piece
        return data

    def _parsed(self, parse: Callable[[bytes], T], answer: bytes) -> T:
        try:
            return parse(answer)
        except (ValueError, struct.error) as error:
            raise self._senseless(str(error)) from error

    def _senseless(self, why: str) -> DeviceError:
        return DeviceError(
            f"{self._name} gave an invalid answer: {why}",
            hint="write a firmware that fits this version with edgekit flash",
        )
