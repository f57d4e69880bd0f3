"""The agent on a board, called over SSH: inputs go with the call, and outputs come back with it."""

from __future__ import annotations

import re
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.agent.build import AGENT_WITH_RUNTIME
from edgekit.base.errors import DeviceError
from edgekit.base.options import option
from edgekit.base.signals import signal_meaning
from edgekit.base.wording import counted
from edgekit.devices.linux.agent_messages import (
    STARTING,
    AgentInfo,
    AgentMessage,
    AgentMessages,
    parse_info,
)
from edgekit.devices.linux.preflight import lacks_libraries
from edgekit.devices.linux.remote_command import CommandEnded, CommandTimeout, Finished
from edgekit.devices.local.crashes import failure_hint, signal_hint
from edgekit.devices.tensors import array_from_npy, largest_npy, npy_bytes

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.measurer import Measurer
    from edgekit.base.tensors import TensorSpec
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.lease import Lease
    from edgekit.devices.linux.lease_client import LeaseClient
    from edgekit.devices.linux.remote_command import RemoteCommand

_SHOWN_LINES = 12
_MOST_ERRORS = 10_000
_MISSING_LIBRARY = re.compile(r"error while loading shared libraries: ([\w.+-]{1,80}): cannot open")
"""Message of glibc's loader, printed before the agent starts."""
_BATCH_FOLDER = "sample"
HEARD_NOTHING = "nothing was heard of the host"
"""Message of an agent that ended for that reason; `agent/src/requests.cc`."""


@dataclass(frozen=True)
class ReadyAgent:
    """The agent on a device that is connected and held."""

    connection: Connection
    root: str
    program: str
    leased: Lease
    client: LeaseClient
    timeout: float
    """Seconds without a sign of life after which a call fails."""
    is_known_as_twin: bool = False
    runtime: str | None = None
    """The folder of the program with TVM's runtime; None where it was not asked for."""

    @property
    def measured_by(self) -> Measurer:
        return "emulator" if self.is_known_as_twin else self.leased.measured_by

    @property
    def program_with_runtime(self) -> str:
        assert self.runtime is not None
        return f"{self.runtime}/{AGENT_WITH_RUNTIME}"

    @property
    def name(self) -> str:
        return self.connection.name

    @property
    def scratch(self) -> str:
        """Folder on the device that is deleted when the device is released."""
        return self.leased.scratch

    def info(self) -> AgentInfo:
        """Ask the agent about the device."""
        done = self.connection.run((self.program, "info", self.root), timeout=30)
        if done.status != 0:
            raise DeviceError(
                f"the agent does not start on {self.connection.name}",
                hint="its last lines say more; `edgekit device check` looks at the device",
                details=done.errors[-_SHOWN_LINES:],
            )
        return parse_info(done.output, self.connection.name)

    def call(
        self,
        words: Sequence[str],
        batch: Sequence[Sequence[Array]],
        messages: AgentMessages,
        follow: Callable[[AgentMessage], None] | None = None,
    ) -> Finished:
        """Call the agent with a batch of samples, and wait for the end."""
        with self.calling(words, batch, messages, 0, follow) as call:
            return call.done

    @contextmanager
    def calling(
        self,
        words: Sequence[str],
        batch: Sequence[Sequence[Array]],
        messages: AgentMessages,
        outputs: int,
        follow: Callable[[AgentMessage], None] | None = None,
    ) -> Iterator[AgentCall]:
        """Run a call to its end. A successful one gives `outputs` outputs for each sample."""
        folders = [f"{_BATCH_FOLDER}-{number}" for number in range(len(batch))]
        files = [
            (f"{folder}/input-{number}.npy", npy_bytes(array))
            for folder, arrays in zip(folders, batch, strict=True)
            for number, array in enumerate(arrays)
        ]
        mark = secrets.token_hex(8)
        sizes = [str(number) for number in (outputs, len(batch), len(files))]
        described = [word for name, data in files for word in (name, str(len(data)))]
        by = () if self.runtime is None else ("--runtime", self.runtime)
        agent = (*by, *words, *(f"{self.scratch}/{folder}" for folder in folders))
        command = self.client.command
        # What it said before it ended is read below.
        with suppress(CommandEnded), command.one_message():
            self.client.ask(("call", mark, *sizes, *described, *agent), self.timeout)
            for _, data in files:
                command.send(data, self.timeout)
        done = self._follow(command, mark, messages, follow)
        call = AgentCall(self, command, done)
        if done.status == 0:
            call.read_sizes(outputs * len(batch))
        try:
            yield call
        except GeneratorExit:
            call.skip_rest()  # the next call's answer follows it
            raise

    def _follow(
        self,
        command: RemoteCommand,
        mark: str,
        messages: AgentMessages,
        follow: Callable[[AgentMessage], None] | None,
    ) -> Finished:
        """Read messages until the call ends, without what the model printed in between."""
        try:
            while (line := command.next_line(self.timeout)) is not None:
                ended = line.split() if line.startswith(mark) else []
                if len(ended) == 3 and ended[1].isdecimal() and ended[2].isdecimal():
                    count = min(int(ended[2]), _MOST_ERRORS)
                    errors = tuple(command.read_line(self.timeout) for _ in range(count))
                    return Finished(int(ended[1]), "", errors)
                message = messages.take(line)
                if follow is not None and message is not None:
                    follow(message)
        except CommandTimeout as error:
            raise DeviceError(
                f"the model on {self.name} gave no sign of life for "
                f"{self.timeout:g} s while {messages.phase}",
                hint=f"give it longer with {option('timeout')}, or check whether the device is "
                "overloaded",
                details=error.details,
            ) from error
        return command.finish(timeout=30)

    def failure(self, done: Finished, messages: AgentMessages, board: str) -> DeviceError:
        """Return the error for a call that failed."""
        name, phase = self.name, messages.phase
        last = tuple(
            line for line in done.errors if not line.startswith(("edgekit-agent:", "edgekit:"))
        )[-_SHOWN_LINES:]
        if any(HEARD_NOTHING in line for line in done.errors):
            return DeviceError(
                f"{name} lost contact with this host, and ended its work while {phase}",
                hint="was this machine suspended, or edgekit stopped? start it again",
            )
        if messages.error is not None:
            if "no space left" in messages.error.lower():
                what = "the inputs" if phase == STARTING else "the outputs"
                return no_room(what, name)
            first, *rest = messages.error.strip().splitlines() or ["no reason given"]
            return DeviceError(
                f"the model failed on {name} while {phase}: {first}",
                hint=failure_hint(first),
                details=(*rest[:_SHOWN_LINES], *last),
            )
        if done.signal is not None:
            return DeviceError(
                f"the model crashed on {name} while {phase}: {signal_meaning(done.signal)}",
                hint=signal_hint(done.signal, board),
                details=last,
            )
        for line in done.errors:
            missing = _MISSING_LIBRARY.search(line)
            if missing:
                return lacks_libraries(name, [missing[1]])
        return DeviceError(
            f"the model ended its process on {name} with exit code {done.status} while {phase}",
            hint="the last lines that it wrote say more, if it wrote any",
            details=last,
        )


class AgentCall:
    """A call that has ended."""

    def __init__(self, agent: ReadyAgent, command: RemoteCommand, done: Finished) -> None:
        self.done = done
        self._agent = agent
        self._command = command
        self._sizes: deque[int] = deque()
        """Sizes of the outputs that are still to be read."""

    def read_sizes(self, count: int) -> None:
        lines = [self._command.read_line(self._agent.timeout) for _ in range(count)]
        self._sizes.extend(int(line) if line.isdecimal() else -1 for line in lines)

    def outputs(self, specs: Sequence[TensorSpec], samples: int) -> Iterator[list[Array]]:
        """Read the outputs of one sample after another. None of it is trusted."""
        for _ in range(samples):
            yield [self._output(spec, self._sizes.popleft()) for spec in specs]

    def skip_rest(self) -> None:
        while self._sizes:
            self._command.read_exactly(max(self._sizes.popleft(), 0), self._agent.timeout)

    def _output(self, spec: TensorSpec, size: int) -> Array:
        if not 0 <= size <= largest_npy(spec):
            raise DeviceError(
                f"{self._agent.name} gave an output {spec.name} of {counted(size, 'byte')}, "
                "which is not its size",
                hint="the library and the manifest do not match; build the bundle again",
            )
        data = self._command.read_exactly(size, self._agent.timeout)
        return array_from_npy(data, spec, self._agent.name)


def no_room(what: str, name: str) -> DeviceError:
    return DeviceError(
        f"{name} could not store {what}: its disk is full",
        hint=f"free some space on it: edgekit device clean {name}",
    )
