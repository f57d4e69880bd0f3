"""The requests to a microcontroller and its answers; docs/serial-protocol.md. Answers are not
trusted: ValueError for an invalid one."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from edgekit.base.wording import counted

ANSWER = 0x80
REFUSED = 0xFE
FAULT = 0xFF

_BUILD_ID = 20
_MOST_MODELS = 256
_MOST_TENSORS = 1024
_MOST_STEPS = 1 << 20


class Request(IntEnum):
    HELLO = 0x01
    MODEL = 0x02
    TENSOR = 0x03
    STEP_NAME = 0x04
    MEMORY = 0x05
    RESET = 0x06
    WRITE = 0x10
    RUN = 0x11
    RUN_STEP = 0x12
    READ = 0x13


class Refusal(IntEnum):
    NO_SESSION = 1
    UNKNOWN = 2
    MALFORMED = 3
    NO_SUCH = 4


@dataclass(frozen=True)
class Hello:
    build_id: str
    clock: int
    """Clock of the core in Hz."""
    cpu: int
    """CPUID register of an Arm core, misa register of a RISC-V core."""
    models: int
    payload: int
    """Most bytes of one message."""
    arena: int
    stack: int
    baud: int

    @property
    def core(self) -> str:
        if self.cpu >> 24 == _RV32:
            return "RV32" + "".join(x for x in _EXTENSIONS if self.cpu >> (ord(x) - ord("A")) & 1)
        return _CORES.get((self.cpu >> 4) & 0xFFF, f"part {(self.cpu >> 4) & 0xFFF:#x}")


_RV32 = 0x40
"""The upper bits of misa on a core with 32 bits. An Arm core has 0x41, Arm's number, there."""
_EXTENSIONS = "IEMAFDC"
_CORES = {
    0xC20: "Cortex-M0",
    0xC60: "Cortex-M0+",
    0xC23: "Cortex-M3",
    0xC24: "Cortex-M4",
    0xC27: "Cortex-M7",
    0xD20: "Cortex-M23",
    0xD21: "Cortex-M33",
    0xD22: "Cortex-M55",
    0xD23: "Cortex-M85",
}


@dataclass(frozen=True)
class ModelOnBoard:
    name: str
    sha256: str
    arena: int
    inputs: int
    outputs: int
    steps: int
    failed_check: int
    """Number of the check that failed; 0 if all passed."""
    keeps_inputs: bool
    """Whether it can run again on the same inputs."""


@dataclass(frozen=True)
class TensorOnBoard:
    name: str
    dtype: str
    bytes: int


@dataclass(frozen=True)
class Inference:
    status: int
    cycles: int


@dataclass(frozen=True)
class MemoryMarks:
    stack: int
    stack_used: int
    """Peak since the board's start."""
    damaged_frames: int
    """Frames that reached the board damaged."""


@dataclass(frozen=True)
class FaultReport:
    """The registers of a stopped core, by their names in Arm's manuals. Those of a RISC-V core in
    their places are listed in docs/serial-protocol.md."""

    exception: int
    cfsr: int
    hfsr: int
    mmfar: int
    bfar: int
    exc_return: int
    sp: int
    registers: tuple[int, ...] | None
    """r0 r1 r2 r3 r12 lr pc xpsr; None if the stack that holds them is invalid."""

    @property
    def pc(self) -> int | None:
        return None if self.registers is None else self.registers[6]

    @property
    def lr(self) -> int | None:
        return None if self.registers is None else self.registers[5]


def parse_hello(data: bytes) -> Hello:
    _need(data, _BUILD_ID + 28)
    clock, cpu, models, payload, arena, stack, baud = struct.unpack_from("<7I", data, _BUILD_ID)
    if not 0 < models <= _MOST_MODELS or not 64 <= payload <= 65535 or clock == 0:
        raise ValueError("it says it has no model, or no memory for a message")
    return Hello(data[:_BUILD_ID].hex(), clock, cpu, models, payload, arena, stack, baud)


def parse_model(data: bytes) -> ModelOnBoard:
    _need(data, 24)
    arena, inputs, outputs, steps, failed, keeps = struct.unpack_from("<6I", data)
    name, sha256 = _texts(data[24:])
    if max(inputs, outputs) > _MOST_TENSORS or steps > _MOST_STEPS:
        raise ValueError("it has more tensors or steps than any model")
    return ModelOnBoard(name, sha256, arena, inputs, outputs, steps, failed, keeps != 0)


def parse_tensor(data: bytes) -> TensorOnBoard:
    _need(data, 4)
    name, dtype = _texts(data[4:])
    return TensorOnBoard(name, dtype, struct.unpack_from("<I", data)[0])


def parse_inference(data: bytes) -> Inference:
    _need(data, 12)
    status, cycles = struct.unpack_from("<iQ", data)
    return Inference(status, cycles)


def parse_memory(data: bytes) -> MemoryMarks:
    _need(data, 12)
    return MemoryMarks(*struct.unpack_from("<3I", data))


def parse_fault(data: bytes) -> FaultReport:
    _need(data, 64)
    words = struct.unpack_from("<16I", data)
    return FaultReport(
        exception=words[0],
        cfsr=words[1],
        hfsr=words[2],
        mmfar=words[3],
        bfar=words[4],
        exc_return=words[5],
        sp=words[6],
        registers=words[8:16] if words[7] else None,
    )


def parse_text(data: bytes) -> str:
    return _printable(data)


def _texts(data: bytes) -> tuple[str, str]:
    first, zero, second = data.partition(b"\0")
    if not zero:
        raise ValueError("a text is missing")
    return _printable(first), _printable(second)


def _printable(data: bytes) -> str:
    text = data.decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text[:200])


def _need(data: bytes, count: int) -> None:
    if len(data) < count:
        raise ValueError(f"{counted(len(data), 'byte')} where {count} belong")
