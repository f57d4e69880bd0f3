"""A Linux board over SSH as a device: what is missing there is pushed, and the agent runs it."""

from __future__ import annotations

import getpass
import itertools
import socket
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.devices.agent_messages import AgentInfo, AgentMessages, parse_bench, parse_info
from edgekit.devices.base import BenchPlan, BenchSamples, RunResult
from edgekit.devices.connection import Connection, connect
from edgekit.devices.crashes import signal_hint, signal_meaning
from edgekit.devices.lease import lease
from edgekit.devices.local import DEFAULT_TIMEOUT_SECONDS
from edgekit.devices.preflight import check_libraries, check_machine
from edgekit.devices.probe import DeviceFacts, ask_device, check_place
from edgekit.devices.remote_command import CommandTimeout, Finished
from edgekit.devices.tensors import array_from_npy, in_order, largest_npy, named_outputs, npy_bytes
from edgekit.devices.transfer import Item, Store
from edgekit.errors import DeviceError
from edgekit.events import SILENT, Events, Stage

if TYPE_CHECKING:
    from edgekit.agent.build import Agent
    from edgekit.arrays import Array
    from edgekit.bundle import Bundle
    from edgekit.cross.toolchain import Toolchain
    from edgekit.device_entry import DeviceEntry
    from edgekit.devices.hostkeys import KnownHosts

LIBRARY = "model.so"
_MOST_SAMPLES_AT_ONCE = 32
_MOST_BYTES_AT_ONCE = 64 << 20
_SHOWN_LINES = 12

# What lies there was run and fetched. The samples arrive as one stream, and are taken apart out of
# a file: in a pipe, `head` may read ahead.
_UNPACK = """\
LC_ALL=C; export LC_ALL
cd "$1" || exit 1
umask 077
rm -rf ./*
cat >inputs || exit 1
shift; start=1; size=0
while [ $# -gt 1 ]; do
  mkdir -p "${1%/*}" || exit 1
  tail -c +$start inputs | head -c "$2" >"$1" || exit 1
  [ "$(wc -c <"$1")" -eq "$2" ] || { echo "No space left on device" >&2; exit 1; }
  start=$((start + $2)); shift 2
done
rm -f inputs"""

_FETCH = """\
for file; do wc -c <"$file" || exit 1; done
cat -- "$@"
"""


@dataclass(frozen=True)
class SshDevice:
    """Every call is a connection of its own, and has the device to itself for its time."""

    entry: DeviceEntry
    toolchain: Toolchain
    """What the agent is compiled with."""
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    """Seconds without a sign of life."""
    known_hosts: KnownHosts | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.entry.name)

    def run(
        self, bundle: Bundle, inputs: Mapping[str, Array], *, events: Events = SILENT
    ) -> RunResult:
        (result,) = self.run_all(bundle, [inputs], events=events)
        return result

    def run_all(
        self, bundle: Bundle, samples: Iterable[Mapping[str, Array]], *, events: Events = SILENT
    ) -> Generator[RunResult, None, None]:
        with self._prepared(bundle, events) as session:
            for batch in _batches(in_order(bundle, sample) for sample in samples):
                yield from session.run(bundle, batch)

    def bench(
        self,
        bundle: Bundle,
        inputs: Mapping[str, Array],
        plan: BenchPlan,
        *,
        events: Events = SILENT,
    ) -> BenchSamples:
        with self._prepared(bundle, events) as session:
            return session.bench(in_order(bundle, inputs), plan, events)

    def info(self, *, events: Events = SILENT) -> AgentInfo:
        """What the agent on the device says of the device."""
        with self.opened(events) as session:
            return session.info()

    @contextmanager
    def _prepared(self, bundle: Bundle, events: Events) -> Iterator[SshSession]:
        with self.opened(events, bundle) as session:
            item = Item(bundle.library, LIBRARY, *_library_identity(bundle))
            folder = f"models/{bundle.digest}"
            if not session.store.has(folder, [item]):
                check_libraries(
                    [bundle.library],
                    session.facts,
                    session.connection,
                    frozenset(file.path.name for file in session.agent.files),
                )
                session.store.push([item], folder, events=events, what="the model")
            session.library = session.store.path(folder, LIBRARY)
            yield session

    @contextmanager
    def opened(self, events: Events, bundle: Bundle | None = None) -> Iterator[SshSession]:
        """The device, connected, ours, and with the agent in place, for the time of the block."""
        from edgekit.agent.build import build_agent

        with connect(self.entry, known_hosts=self.known_hosts) as connection:
            facts = ask_device(connection, self.entry.directory)
            if bundle is not None:
                check_machine(bundle, facts, self.name)
            self._check_board(facts)
            check_place(facts, self.name)
            agent = build_agent(self.toolchain, facts.machine, events=events)
            store = Store(connection, facts)
            with lease(
                connection, facts.root, wait=self.timeout, user=_who(), events=events
            ) as leased:
                folder = f"agents/{agent.digest}"
                items = [
                    Item(f.path, f.path.name, f.sha256, f.size, f.executable) for f in agent.files
                ]
                if not store.has(folder, items):
                    check_libraries(
                        [f.path for f in agent.files if _is_code(f.path.name)],
                        facts,
                        connection,
                        frozenset(item.name for item in items),
                    )
                    store.push(items, folder, events=events, what="the agent")
                program = store.path(folder, "edgekit-agent")
                yield SshSession(connection, facts, store, agent, program, leased.scratch, self)

    def _check_board(self, facts: DeviceFacts) -> None:
        arch = self.toolchain.triple.partition("-")[0]
        if arch != facts.machine:
            raise DeviceError(
                f"{self.name} is a {facts.machine} machine, and its board {self.entry.board} is "
                f"an {arch} one",
                hint=f"add it again with the right board: edgekit device add {self.name} --board …",
            )


@dataclass
class SshSession:
    """A device that is ours, with the agent in place."""

    connection: Connection
    facts: DeviceFacts
    store: Store
    agent: Agent
    program: str
    scratch: str
    device: SshDevice
    library: str = ""
    _batches: Iterator[int] = field(default_factory=itertools.count)

    def info(self) -> AgentInfo:
        done = self.connection.run((self.program, "info", self.store.root), timeout=30)
        if done.status != 0:
            raise self._failed(done, AgentMessages())
        return parse_info(done.output, self.device.name)

    def run(self, bundle: Bundle, batch: Sequence[Sequence[Array]]) -> Iterator[RunResult]:
        folders = self._put(batch)
        messages = AgentMessages()
        done = self._call(("run", self.library, *folders), messages)
        if done.status != 0 or len(messages.samples) != len(folders):
            raise self._failed(done, messages)
        for folder, nanoseconds in zip(folders, messages.samples, strict=True):
            arrays = self._fetch(bundle, folder)
            yield RunResult(named_outputs(bundle, arrays), nanoseconds / 1e9)

    def bench(self, inputs: Sequence[Array], plan: BenchPlan, events: Events) -> BenchSamples:
        (folder,) = self._put([inputs])
        words = [
            *("bench", "--warmup", str(plan.warmup), "--runs", str(plan.runs)),
            *("--seconds", f"{plan.seconds:.6f}"),
        ]
        if plan.threads is not None:
            words += ["--threads", str(plan.threads)]
        total = plan.warmup + plan.runs if plan.seconds == 0 else None
        messages = AgentMessages()
        with events.stage(f"measure on {self.device.name}", total) as stage:
            done = self._call((*words, self.library, folder), messages, _Follow(stage, plan.warmup))
            if done.status != 0 or messages.answer is None:
                raise self._failed(done, messages)
            samples = parse_bench(messages.answer, self.device.name)
            stage.result = f"{len(samples.nanoseconds)} runs"
        return samples

    def _call(
        self, words: Sequence[str], messages: AgentMessages, follow: _Follow | None = None
    ) -> Finished:
        def take(line: str) -> None:
            message = messages.take(line)
            if follow is not None and message is not None:
                follow(message)

        try:
            return self.connection.run(
                (self.program, *words), timeout=None, silence=self.device.timeout, on_line=take
            )
        except CommandTimeout as error:
            raise DeviceError(
                f"the model on {self.device.name} gave no sign of life for "
                f"{self.device.timeout:g} s while {messages.phase}",
                hint="give it longer with --timeout, or check whether the device is overloaded",
                details=error.details,
            ) from error

    def _put(self, batch: Sequence[Sequence[Array]]) -> list[str]:
        """Write every sample's inputs into a folder of its own; the folders."""
        first = next(self._batches)
        folders = [f"{first}-{number}" for number in range(len(batch))]
        files = [
            (f"{folder}/input-{number}.npy", npy_bytes(array))
            for folder, arrays in zip(folders, batch, strict=True)
            for number, array in enumerate(arrays)
        ]
        described = [word for name, data in files for word in (name, str(len(data)))]
        words = ("sh", "-c", _UNPACK, "edgekit", self.scratch, *described)
        with self.connection.command(words) as command:
            for _, data in files:
                command.send(data, self.device.timeout)
            command.end_input()
            done = command.finish(silence=self.device.timeout)
        if done.status != 0:
            raise self._no_room("the inputs", done)
        return [f"{self.scratch}/{folder}" for folder in folders]

    def _fetch(self, bundle: Bundle, folder: str) -> list[Array]:
        specs = [entry.spec for entry in bundle.manifest.outputs]
        names = [f"{folder}/output-{number}.npy" for number in range(len(specs))]
        name = self.device.name
        arrays = []
        with self.connection.command(("sh", "-c", _FETCH, "edgekit", *names)) as command:
            lines = [command.read_line(self.device.timeout).strip() for _ in names]
            for line, spec in zip(lines, specs, strict=True):
                if not line.isdecimal() or int(line) > largest_npy(spec):
                    raise DeviceError(
                        f"{name} gave an output {spec.name} of {line[:20]} bytes, too many for it",
                        hint="the library and the manifest do not belong together; build the "
                        "bundle again",
                    )
            for line, spec in zip(lines, specs, strict=True):
                data = command.read_exactly(int(line), self.device.timeout)
                arrays.append(array_from_npy(data, spec, name))
        return arrays

    def _failed(self, done: Finished, messages: AgentMessages) -> DeviceError:
        where, phase = self.device.name, messages.phase
        last = tuple(
            line for line in done.errors if not line.startswith(("edgekit-agent:", "edgekit:"))
        )[-_SHOWN_LINES:]
        if messages.error is not None:
            if "no space left" in messages.error.lower():
                return self._no_room("the outputs", done)
            first, *rest = messages.error.strip().splitlines() or ["no reason given"]
            return DeviceError(
                f"the model failed on {where} while {phase}: {first}",
                hint="check that the bundle was built by this version of edgekit, for this board",
                details=(*rest[:_SHOWN_LINES], *last),
            )
        if done.signal is not None:
            board = self.device.entry.board
            return DeviceError(
                f"the model crashed on {where} while {phase}: {signal_meaning(done.signal)}",
                hint=signal_hint(done.signal, board),
                details=last,
            )
        return DeviceError(
            f"the model ended its process on {where} with exit code {done.status} while {phase}",
            hint="the last lines that it wrote say more, if it wrote any",
            details=last,
        )

    def _no_room(self, what: str, done: Finished) -> DeviceError:
        told = " ".join(done.errors).lower()
        full = "no space left" in told or "quota" in told
        reason = "its disk is full" if full else (done.errors or ("it said nothing",))[-1]
        return DeviceError(
            f"{self.device.name} could not store {what}: {reason}",
            hint=f"free some space over there: edgekit device clean {self.device.name}",
        )


class _Follow:
    """Moves a stage on as the agent reports its progress."""

    def __init__(self, stage: Stage, warmup: int) -> None:
        self._stage = stage
        self._warmup = warmup
        self._done = 0

    def __call__(self, message: Mapping[str, object]) -> None:
        progress, phase = message.get("progress"), str(message.get("phase", ""))[:40]
        if isinstance(progress, int):
            now = progress + (self._warmup if phase == "measuring" else 0)
            self._stage.advance(now - self._done, phase)
            self._done = now


def _batches(samples: Iterator[list[Array]]) -> Iterator[list[list[Array]]]:
    """Samples in groups that are worth a start of the model, and fit a board's memory."""
    batch: list[list[Array]] = []
    size = 0
    for sample in samples:
        batch.append(sample)
        size += sum(array.nbytes for array in sample)
        if len(batch) >= _MOST_SAMPLES_AT_ONCE or size >= _MOST_BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _library_identity(bundle: Bundle) -> tuple[str, int]:
    (entry,) = (file for file in bundle.manifest.files if file.role == "library")
    return entry.sha256, entry.size


def _is_code(name: str) -> bool:
    return name == "edgekit-agent" or ".so" in name


def _who() -> str:
    """Told to whoever finds the device in use."""
    return f"{getpass.getuser()} on {socket.gethostname()}"
