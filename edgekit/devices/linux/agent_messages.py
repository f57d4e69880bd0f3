"""The messages of the agent on a board, line by line. None of it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from edgekit.base.decode import Check, Convert, Count, Most, Range, decode, decode_json
from edgekit.base.json_reader import read_json_object
from edgekit.devices.base import BenchSamples
from edgekit.devices.bench_answer import BenchAnswer, decoded_answer, senseless
from edgekit.devices.linux.region_work import WORKING, Working

STARTING = "starting"
"""AgentPhase before the agent's first message."""

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


_Short = Annotated[str, Convert("text", lambda said: str(said)[:200])]


@dataclass(frozen=True)
class Failed:
    error: str


@dataclass(frozen=True)
class AgentPhase:
    phase: Annotated[str, Most(40)]
    progress: Count | None = None
    """The inferences that the phase has behind it."""


@dataclass(frozen=True)
class SampleDone:
    sample: str
    nanoseconds: Count


@dataclass(frozen=True)
class ServerState:
    """A change of an agent that serves TVM's RPC. It says what belongs to the state."""

    state: _Short
    port: Annotated[int, Range(1, (1 << 16) - 1)] | None = None
    reason: _Short = ""
    offer: _Short = ""
    session: _Short = ""


AgentMessage: TypeAlias = Failed | Working | AgentPhase | SampleDone | ServerState
_KINDS: Mapping[str, type[AgentMessage]] = {
    "error": Failed,
    WORKING: Working,
    "phase": AgentPhase,
    "sample": SampleDone,
    "state": ServerState,
}
"""A message's kind, by the key that no other has."""


def _read(line: str) -> AgentMessage | dict[str, Any]:
    """Read a message, or an answer as it is; ValueError if the line holds neither."""
    document = read_json_object(line)
    for key, kind in _KINDS.items():
        if key in document:
            return decode(kind, document, ignore_unknown=True)
    return document


class AgentMessages:
    """Reads the agent's lines as they come, and ignores what a model prints in between."""

    def __init__(self) -> None:
        self.phase = STARTING
        self.error: str | None = None
        self.samples: list[int] = []
        """Nanoseconds of each finished sample."""
        self.answer: Mapping[str, Any] | None = None

    def take(self, line: str) -> AgentMessage | None:
        """Return the message in a line; None if it holds none, or the answer."""
        if not line.startswith("{"):
            return None
        try:
            message = _read(line)
        except ValueError:
            return None
        if isinstance(message, dict):
            self.answer = message
            return None
        if isinstance(message, Failed):
            self.error = message.error
        elif isinstance(message, AgentPhase):
            self.phase = message.phase
        elif isinstance(message, SampleDone):
            self.samples.append(message.nanoseconds)
        return message


def parse_info(line: str, name: str) -> AgentInfo:
    sender = f"the agent on {name}"
    try:
        return decode_json(AgentInfo, line, ignore_unknown=True)
    except ValueError as error:
        raise senseless(sender, error) from error


def parse_bench(said: object, name: str) -> BenchSamples:
    answer = decoded_answer(_BenchAnswer, said, f"the agent on {name}")
    return answer.samples(answer.nanoseconds, answer.threads, answer.load_nanoseconds)
