"""The messages of the agent on a board, line by line. None of it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from edgekit.base.decode import Check, Count, Most
from edgekit.base.json_reader import read_json
from edgekit.devices.base import BenchSamples
from edgekit.devices.bench_answer import BenchAnswer, decoded_answer, senseless
from edgekit.devices.linux.region_work import WORKING

STARTING = "starting"
"""Phase before the agent's first message."""

_MOST_SAMPLES = 1_000_000


@dataclass(frozen=True)
class AgentInfo:
    """Facts that a board reports about itself. Unknown is None, never zero."""

    agent: str
    tvm: str
    tvm_ffi: str
    machine: str
    kernel: str
    hostname: str
    glibc: str
    features: tuple[str, ...]
    cores: Count
    memory: Count | None
    memory_available: Count | None
    disk_free: Count | None
    millidegrees: int | None


@dataclass(frozen=True, kw_only=True)
class _BenchAnswer(BenchAnswer):
    nanoseconds: Annotated[
        tuple[Count, ...], Most(_MOST_SAMPLES, "samples"), Check("a list of samples", len)
    ]
    threads: Count
    load_nanoseconds: Count | None


class AgentMessages:
    """Reads the agent's lines as they come, and ignores what a model prints in between."""

    def __init__(self) -> None:
        self.phase = STARTING
        self.threads: int | None = None
        self.error: str | None = None
        self.samples: list[int] = []
        """Nanoseconds of each finished sample."""
        self.answer: Mapping[str, Any] | None = None

    def take(self, line: str) -> Mapping[str, Any] | None:
        """Return the message in a line; None if it holds none."""
        if not line.startswith("{"):
            return None
        try:
            message = read_json(line)
        except ValueError:
            return None
        if not isinstance(message, dict):
            return None
        if "error" in message:
            self.error = str(message["error"])
        elif WORKING in message:
            pass  # a sign of life
        elif "phase" in message:
            self.phase = str(message["phase"])[:40]
            if isinstance(message.get("threads"), int):
                self.threads = message["threads"]
        elif "sample" in message and isinstance(message.get("nanoseconds"), int):
            self.samples.append(message["nanoseconds"])
        else:
            self.answer = message
        return message


def parse_info(line: str, name: str) -> AgentInfo:
    sender = f"the agent on {name}"
    try:
        return decoded_answer(AgentInfo, read_json(line), sender)
    except ValueError as error:
        raise senseless(sender, error) from error


def parse_bench(said: object, name: str) -> BenchSamples:
    answer = decoded_answer(_BenchAnswer, said, f"the agent on {name}")
    return answer.samples(answer.nanoseconds, answer.threads, answer.load_nanoseconds)
