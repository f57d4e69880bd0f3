"""A bundle on a board over SSH: the agent runs it there, as often as one likes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from edgekit.devices.agent_messages import AgentInfo, AgentMessages, parse_bench, parse_info
from edgekit.devices.base import BenchPlan, BenchSamples, Installed, RunResult, check_same
from edgekit.devices.connection import Connection
from edgekit.devices.crashes import signal_hint, signal_meaning
from edgekit.devices.device_log import log_line
from edgekit.devices.lease import Lease
from edgekit.devices.remote_command import CommandTimeout, Finished
from edgekit.devices.tensors import array_from_npy, in_order, largest_npy, named_outputs, npy_bytes
from edgekit.devices.version_records import ModelFile, ModelInput, new_record
from edgekit.devices.versions import Recorded, record_version
from edgekit.errors import DeviceError, EdgekitError, InterruptedByUserError
from edgekit.events import SILENT, Events, Stage

if TYPE_CHECKING:
    from edgekit.arrays import Array
    from edgekit.bundle import Bundle
    from edgekit.manifest import FileEntry

LIBRARY = "model.so"
"""Its name on a device."""

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

    def put(self, batch: Sequence[Sequence[Array]], first: int = 0) -> list[str]:
        """Write every sample's inputs into a folder of its own; the folders."""
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
                command.send(data, self.timeout)
            command.end_input()
            done = command.finish(silence=self.timeout)
        if done.status != 0:
            raise _no_room("the inputs", done, self.name)
        return [f"{self.scratch}/{folder}" for folder in folders]

    def call(
        self,
        words: Sequence[str],
        messages: AgentMessages,
        follow: Callable[[Mapping[str, object]], None] | None = None,
    ) -> Finished:
        def take(line: str) -> None:
            message = messages.take(line)
            if follow is not None and message is not None:
                follow(message)

        try:
            return self.connection.run(
                (self.program, *words), timeout=None, silence=self.timeout, on_line=take
            )
        except CommandTimeout as error:
            raise DeviceError(
                f"the model on {self.name} gave no sign of life for "
                f"{self.timeout:g} s while {messages.phase}",
                hint="give it longer with --timeout, or check whether the device is overloaded",
                details=error.details,
            ) from error

    def failure(self, done: Finished, messages: AgentMessages, board: str) -> DeviceError:
        """What a call that failed is told as."""
        return _failed(done, messages, self.name, board)


@dataclass(frozen=True)
class SshSession:
    agent: ReadyAgent
    bundle: Bundle
    library: str
    """The model's, over there."""
    installed: Installed
    events: Events
    _batches: Iterator[int] = field(default_factory=itertools.count)

    @property
    def name(self) -> str:
        return self.agent.connection.name

    @contextmanager
    def opened(self, bundle: Bundle, *, events: Events = SILENT) -> Iterator[SshSession]:
        check_same(self.bundle, bundle)
        yield self

    def run(self, inputs: Mapping[str, Array]) -> RunResult:
        (result,) = self.run_all([inputs])
        return result

    def run_all(self, samples: Iterable[Mapping[str, Array]]) -> Generator[RunResult, None, None]:
        seconds: list[float] = []
        with self._logged("run") as entry:
            for batch in _in_batches(in_order(self.bundle, sample) for sample in samples):
                for result in self._run_batch(batch):
                    seconds.append(result.seconds)
                    yield result
            entry.seconds = median(seconds) if seconds else None
            entry.message = f"{len(seconds)} samples" if len(seconds) > 1 else None

    def _run_batch(self, batch: Sequence[Sequence[Array]]) -> Iterator[RunResult]:
        folders = self.agent.put(batch, next(self._batches))
        messages = AgentMessages()
        done = self.agent.call(("run", self.library, *folders), messages)
        if done.status != 0 or len(messages.samples) != len(folders):
            raise self._failure(done, messages)
        for folder, nanoseconds in zip(folders, messages.samples, strict=True):
            arrays = self._fetch(folder)
            yield RunResult(named_outputs(self.bundle, arrays), nanoseconds / 1e9)

    def bench(self, inputs: Mapping[str, Array], plan: BenchPlan) -> BenchSamples:
        (folder,) = self.agent.put([in_order(self.bundle, inputs)], next(self._batches))
        words = [
            *("bench", "--warmup", str(plan.warmup), "--runs", str(plan.runs)),
            *("--seconds", f"{plan.seconds:.6f}"),
        ]
        if plan.threads is not None:
            words += ["--threads", str(plan.threads)]
        if plan.profiled:
            words += ["--profile", str(plan.profiled)]
        total = plan.warmup + plan.runs if plan.seconds == 0 else None
        messages = AgentMessages()
        with (
            self._logged("measured") as entry,
            self.events.stage(f"measure on {self.name}", total) as stage,
        ):
            follow = _Follow(stage, plan.warmup)
            done = self.agent.call((*words, self.library, folder), messages, follow)
            if done.status != 0 or messages.answer is None:
                raise self._failure(done, messages)
            samples = parse_bench(messages.answer, self.name)
            stage.result = f"{len(samples.nanoseconds)} runs"
            entry.seconds = median(samples.nanoseconds) / 1e9
            entry.message = stage.result
        return samples

    def make_current(self, *, verified: bool, median: float | None, keep: int) -> Recorded:
        manifest = self.bundle.manifest
        record = new_record(
            manifest.model.name,
            self.bundle.digest,
            manifest.board.name,
            [ModelFile(LIBRARY, library_entry(self.bundle).sha256)],
            verified=verified,
            median=median,
            inputs=[ModelInput(i.spec.dtype, i.spec.shape) for i in manifest.inputs],
        )
        line = self._log_line("deployed", seconds=median, message=verified_or_not(verified))
        return record_version(self.agent.connection, self.agent.root, record, keep, line)

    def log_failure(self, event: str, error: EdgekitError) -> None:
        self.agent.leased.log(self._log_line(event, error=error))

    @contextmanager
    def _logged(self, event: str) -> Iterator[_Outcome]:
        outcome = _Outcome()
        try:
            yield outcome
        except EdgekitError as error:
            self.log_failure(event, error)
            raise
        except KeyboardInterrupt:
            self.log_failure(event, InterruptedByUserError("interrupted"))
            raise
        line = self._log_line(event, seconds=outcome.seconds, message=outcome.message)
        self.agent.leased.log(line)

    def _log_line(
        self,
        event: str,
        *,
        seconds: float | None = None,
        message: str | None = None,
        error: EdgekitError | None = None,
    ) -> str:
        return log_line(
            event,
            model=self.bundle.manifest.model.name,
            digest=self.bundle.digest,
            seconds=seconds,
            message=message,
            error=error,
        )

    def _failure(self, done: Finished, messages: AgentMessages) -> DeviceError:
        return self.agent.failure(done, messages, self.bundle.manifest.board.name)

    def _fetch(self, folder: str) -> list[Array]:
        specs = [entry.spec for entry in self.bundle.manifest.outputs]
        names = [f"{folder}/output-{number}.npy" for number in range(len(specs))]
        name, timeout = self.name, self.agent.timeout
        arrays = []
        with self.agent.connection.command(("sh", "-c", _FETCH, "edgekit", *names)) as command:
            lines = [command.read_line(timeout).strip() for _ in names]
            for line, spec in zip(lines, specs, strict=True):
                if not line.isdecimal() or int(line) > largest_npy(spec):
                    raise DeviceError(
                        f"{name} gave an output {spec.name} of {line[:20]} bytes, too many for it",
                        hint="the library and the manifest do not belong together; build the "
                        "bundle again",
                    )
            for line, spec in zip(lines, specs, strict=True):
                data = command.read_exactly(int(line), timeout)
                arrays.append(array_from_npy(data, spec, name))
        return arrays


@dataclass
class _Outcome:
    """What the log is to say of something that went well."""

    seconds: float | None = None
    message: str | None = None


class _Follow:
    """Moves a stage on as the agent reports its progress."""

    def __init__(self, stage: Stage, warmup: int) -> None:
        self._stage = stage
        self._warmup = warmup
        self._done = 0

    def __call__(self, message: Mapping[str, object]) -> None:
        progress, phase = message.get("progress"), str(message.get("phase", ""))[:40]
        if isinstance(progress, int) and phase != "profiling":
            now = progress + (self._warmup if phase == "measuring" else 0)
            self._stage.advance(now - self._done, phase)
            self._done = now


def _in_batches(samples: Iterator[list[Array]]) -> Iterator[list[list[Array]]]:
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


def _failed(done: Finished, messages: AgentMessages, name: str, board: str) -> DeviceError:
    phase = messages.phase
    last = tuple(
        line for line in done.errors if not line.startswith(("edgekit-agent:", "edgekit:"))
    )[-_SHOWN_LINES:]
    if messages.error is not None:
        if "no space left" in messages.error.lower():
            return _no_room("the outputs", done, name)
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
    return DeviceError(
        f"the model ended its process on {name} with exit code {done.status} while {phase}",
        hint="the last lines that it wrote say more, if it wrote any",
        details=last,
    )


def library_entry(bundle: Bundle) -> FileEntry:
    (entry,) = (file for file in bundle.manifest.files if file.role == "library")
    return entry


def verified_or_not(verified: bool) -> str:
    return "verified" if verified else "not verified"


def _no_room(what: str, done: Finished, name: str) -> DeviceError:
    told = " ".join(done.errors).lower()
    full = "no space left" in told or "quota" in told
    reason = "its disk is full" if full else (done.errors or ("it said nothing",))[-1]
    return DeviceError(
        f"{name} could not store {what}: {reason}",
        hint=f"free some space over there: edgekit device clean {name}",
    )
