"""The agent on a board, called over SSH: inputs go with the call, and outputs come back with it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.devices.agent_messages import AgentInfo, AgentMessages, parse_info
from edgekit.devices.crashes import signal_hint, signal_meaning
from edgekit.devices.preflight import lacks_libraries
from edgekit.devices.remote_command import GUARDED, CommandTimeout, Finished
from edgekit.devices.tensors import array_from_npy, largest_npy, npy_bytes
from edgekit.errors import DeviceError

if TYPE_CHECKING:
    from edgekit.arrays import Array
    from edgekit.devices.connection import Connection
    from edgekit.devices.lease import Lease
    from edgekit.devices.remote_command import RemoteCommand
    from edgekit.tensors import TensorSpec

_SHOWN_LINES = 12
_MISSING_LIBRARY = re.compile(r"error while loading shared libraries: ([\w.+-]{1,80}): cannot open")
"""What glibc's loader says before the agent can say anything."""
_BATCH_FOLDER = "sample"

# One command for all of it: each one costs a slow board a tenth of a second. What lies there was
# run and fetched. Inputs arrive as one stream. Nothing comes after them until the agent is done, so
# `head` may read ahead; several files are taken apart out of one on the disk, for the same reason.
# The agent's end is told by a line that no model can know, then come the outputs.
_CALL = f"""\
LC_ALL=C; export LC_ALL
umask 077
cd "$1" || exit 1
mark=$2 outputs=$3 total=$4 files=$5 samples=$6; shift 6
for left in *; do [ -e "$left" ] && rm -rf ./* && break; done
number=0 folders=
while [ $number -lt "$samples" ]; do
  folders="$folders {_BATCH_FOLDER}-$number"; number=$((number + 1))
done
mkdir $folders || exit 1
if [ "$files" -eq 1 ]; then head -c "$2" >"$1" || exit 1; shift 2
elif [ "$files" -gt 1 ]; then
  head -c "$total" >inputs || exit 1
  start=1
  while [ "$files" -gt 0 ]; do
    tail -c +$start inputs | head -c "$2" >"$1" || exit 1
    [ "$(wc -c <"$1")" -eq "$2" ] || {{ echo "No space left on device" >&2; exit 1; }}
    start=$((start + $2)) files=$((files - 1)); shift 2
  done
  rm -f inputs
fi
{GUARDED}
printf '\\n%s %s\\n' "$mark" "$s"
[ "$s" -eq 0 ] && [ "$outputs" -gt 0 ] || exit "$s"
set --
for folder in $folders; do
  number=0
  while [ $number -lt "$outputs" ]; do
    set -- "$@" "$folder/output-$number.npy"; number=$((number + 1))
  done
done
wc -c "$@" && cat "$@"
"""


@dataclass(frozen=True)
class ReadyAgent:
    """The agent on a device that is connected, and ours."""

    connection: Connection
    root: str
    program: str
    leased: Lease
    timeout: float
    """Seconds without a sign of life."""

    @property
    def name(self) -> str:
        return self.connection.name

    @property
    def scratch(self) -> str:
        """A folder over there that is gone when the device is given back."""
        return self.leased.scratch

    def info(self) -> AgentInfo:
        """What it says of the device."""
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
        follow: Callable[[Mapping[str, object]], None] | None = None,
    ) -> Finished:
        """Let the agent do something with a batch of samples, and wait for its end."""
        with self.calling(words, batch, messages, 0, follow) as call:
            return call.done

    @contextmanager
    def calling(
        self,
        words: Sequence[str],
        batch: Sequence[Sequence[Array]],
        messages: AgentMessages,
        outputs: int,
        follow: Callable[[Mapping[str, object]], None] | None = None,
    ) -> Iterator[AgentCall]:
        """A call that has ended, and, where it went well, gives so many outputs for each sample."""
        folders = [f"{_BATCH_FOLDER}-{number}" for number in range(len(batch))]
        files = [
            (f"{folder}/input-{number}.npy", npy_bytes(array))
            for folder, arrays in zip(folders, batch, strict=True)
            for number, array in enumerate(arrays)
        ]
        mark = secrets.token_hex(8)
        sizes = (sum(len(data) for _, data in files), len(files), len(batch))
        described = [word for name, data in files for word in (name, str(len(data)))]
        script = ("sh", "-c", _CALL, "edgekit", self.scratch, mark, str(outputs))
        agent = (self.program, *words, *(f"{self.scratch}/{folder}" for folder in folders))
        everything = (*script, *(str(size) for size in sizes), *described, *agent)
        with self.connection.command(everything, title="edgekit-agent") as command:
            for _, data in files:
                command.send(data, self.timeout)
            yield AgentCall(self.name, command, self._follow(command, mark, messages, follow))

    def _follow(
        self,
        command: RemoteCommand,
        mark: str,
        messages: AgentMessages,
        follow: Callable[[Mapping[str, object]], None] | None,
    ) -> Finished:
        try:
            while (line := command.next_line(self.timeout)) is not None:
                word, _, status = line.partition(" ")
                if word == mark and status.isdecimal():
                    if int(status) != 0:
                        return command.finish(timeout=30)
                    return Finished(0, "", command.errors())
                message = messages.take(line)
                if follow is not None and message is not None:
                    follow(message)
        except CommandTimeout as error:
            raise DeviceError(
                f"the model on {self.name} gave no sign of life for "
                f"{self.timeout:g} s while {messages.phase}",
                hint="give it longer with --timeout, or check whether the device is overloaded",
                details=error.details,
            ) from error
        raise no_room("the inputs", command.finish(timeout=30), self.name)

    def failure(self, done: Finished, messages: AgentMessages, board: str) -> DeviceError:
        """What a call that failed is told as."""
        name, phase = self.name, messages.phase
        last = tuple(
            line for line in done.errors if not line.startswith(("edgekit-agent:", "edgekit:"))
        )[-_SHOWN_LINES:]
        if messages.error is not None:
            if "no space left" in messages.error.lower():
                return no_room("the outputs", done, name)
            first, *rest = messages.error.strip().splitlines() or ["no reason given"]
            return DeviceError(
                f"the model failed on {name} while {phase}: {first}",
                hint="check that the bundle was built by this version of edgekit, for this board",
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
    """An agent that is done."""

    def __init__(self, name: str, command: RemoteCommand, done: Finished) -> None:
        self.done = done
        self._name = name
        self._command = command

    def outputs(
        self, specs: Sequence[TensorSpec], samples: int, timeout: float
    ) -> Iterator[list[Array]]:
        """The outputs of one sample after another. None of it is trusted."""
        count = len(specs) * samples
        lines = [self._command.read_line(timeout).split() for _ in range(count)]
        if count > 1:
            self._command.read_line(timeout)  # their sum
        sizes = iter(int(line[0]) if line and line[0].isdecimal() else -1 for line in lines)
        for _ in range(samples):
            yield [self._output(spec, next(sizes), timeout) for spec in specs]

    def _output(self, spec: TensorSpec, size: int, timeout: float) -> Array:
        if not 0 <= size <= largest_npy(spec):
            raise DeviceError(
                f"{self._name} gave an output {spec.name} of {size} bytes, which it can't have",
                hint="the library and the manifest do not belong together; build the bundle again",
            )
        return array_from_npy(self._command.read_exactly(size, timeout), spec, self._name)


def no_room(what: str, done: Finished, name: str) -> DeviceError:
    told = " ".join(done.errors).lower()
    full = "no space left" in told or "quota" in told
    reason = "its disk is full" if full else (done.errors or ("it said nothing",))[-1]
    return DeviceError(
        f"{name} could not store {what}: {reason}",
        hint=f"free some space over there: edgekit device clean {name}",
    )
