"""A bundle on a board over SSH, run by the agent any number of times."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from statistics import median
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError, EdgekitError, InterruptedByUserError
from edgekit.base.events import Events, Stage
from edgekit.base.files import scratch_directory
from edgekit.base.measurer import Measurer
from edgekit.base.paths import cache_dir
from edgekit.base.roof import Limits
from edgekit.base.wording import counted
from edgekit.devices.base import (
    BenchPlan,
    BenchSamples,
    Installed,
    Recorded,
    RunResult,
    SessionBase,
)
from edgekit.devices.limits.measure import SECONDS, compile_program, parse_limits
from edgekit.devices.linux.agent_messages import (
    AgentMessage,
    AgentMessages,
    AgentPhase,
    parse_bench,
)
from edgekit.devices.linux.device_log import clean, log_line
from edgekit.devices.linux.observing import Observer, observe_board
from edgekit.devices.linux.ready_agent import ReadyAgent
from edgekit.devices.linux.region_work import Told, WorkShown
from edgekit.devices.linux.remote_command import Finished
from edgekit.devices.linux.user_files import send_files
from edgekit.devices.linux.version_records import (
    ModelFile,
    ModelInput,
    VersionRecord,
)
from edgekit.devices.tensors import in_order, named_outputs, program_outputs
from edgekit.profiles.toolchain import Toolchain

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import FileEntry

LIBRARY = "model.so"
"""Name of a model's library on a device."""

_MOST_SAMPLES_AT_ONCE = 32
_MOST_BYTES_AT_ONCE = 64 << 20


@dataclass(frozen=True)
class SshSession(SessionBase):
    agent: ReadyAgent
    bundle: Bundle
    library: str
    """Path of the model's library on the device."""
    installed: Installed
    events: Events
    toolchain: Toolchain
    cpu_flags: tuple[str, ...] = ()
    """The compiler's flags for the board's CPU."""
    told: Told = field(default_factory=Told)
    """What the model's regions said of how they run."""

    @property
    def name(self) -> str:
        return self.agent.connection.name

    @property
    def measured_by(self) -> Measurer:
        return self.agent.measured_by

    def run_all(self, samples: Iterable[Mapping[str, Array]]) -> Generator[RunResult, None, None]:
        seconds: list[float] = []
        with self._logged("run") as entry:
            for batch in _in_batches(in_order(self.bundle, sample) for sample in samples):
                for result in self._run_batch(batch):
                    seconds.append(result.seconds)
                    yield result
            entry.seconds = median(seconds) if seconds else None
            entry.message = counted(len(seconds), "sample") if len(seconds) > 1 else None

    def run_one_by_one(
        self, samples: Iterable[Mapping[str, Array]]
    ) -> Generator[RunResult, None, None]:
        """Run each sample in a call of its own: a batch would wait for the next samples."""
        for sample in samples:
            yield from self._run_batch([in_order(self.bundle, sample)])

    def _run_batch(self, batch: Sequence[Sequence[Array]]) -> Iterator[RunResult]:
        specs = program_outputs(self.bundle)
        messages = AgentMessages()
        words = ("run", self.library)
        with (
            WorkShown(self.events, self.name, self.told) as work,
            self.agent.calling(words, batch, messages, len(specs), work.hear) as call,
        ):
            if call.done.status != 0 or len(messages.samples) != len(batch):
                raise self._failure(call.done, messages)
            outputs = call.outputs(specs, len(batch))
            for given, arrays, nanoseconds in zip(batch, outputs, messages.samples, strict=True):
                yield RunResult(named_outputs(self.bundle, arrays, given), nanoseconds / 1e9)

    def bench(self, inputs: Mapping[str, Array], plan: BenchPlan) -> BenchSamples:
        words = [
            *("bench", "--warmup", str(plan.warmup), "--runs", str(plan.runs)),
            *("--seconds", f"{plan.seconds:.6f}"),
        ]
        if plan.threads is not None:
            words += ["--threads", str(plan.threads)]
        if plan.profiled:
            words += ["--profile", str(plan.profiled), "--trace", str(plan.traced)]
        total = plan.warmup + plan.runs if plan.seconds == 0 else None
        messages = AgentMessages()
        with (
            self._logged("measured") as entry,
            observe_board(self.agent.connection, self.agent.program, plan.sensors) as observer,
            self.events.stage(f"measure on {self.name}", total) as stage,
            WorkShown(self.events, self.name, self.told, aloud=False) as work,
        ):
            follow = _Follow(stage, plan.warmup, observer, work)
            batch = [in_order(self.bundle, inputs)]
            done = self.agent.call((*words, self.library), batch, messages, follow)
            if done.status != 0 or messages.answer is None:
                raise self._failure(done, messages)
            samples = replace(
                parse_bench(messages.answer, self.name),
                observed=observer.end(),
                told=tuple(self.told.notes),
                warned=tuple(self.told.warnings),
            )
            stage.result = counted(len(samples.nanoseconds), "run")
            entry.seconds = median(samples.nanoseconds) / 1e9
            entry.message = stage.result
        return samples

    def limits(self, threads: int) -> Limits:
        connection = self.agent.connection
        with (
            self.events.stage(f"measure the limits of {self.name}"),
            scratch_directory(cache_dir()) as folder,
        ):
            program = compile_program(self.toolchain, self.cpu_flags, folder)
            send_files(connection, (program,), f"{self.agent.scratch}/", self.events)
            words = (f"{self.agent.scratch}/{program.name}", str(threads))
            done = connection.run(words, timeout=SECONDS)
        return parse_limits(done.output, threads, self.name)

    def make_current(self, *, verified: bool, median: float | None, keep: int) -> Recorded:
        manifest = self.bundle.manifest
        code = self.bundle.code
        specs = [entry.spec for entry in manifest.inputs]
        # A test inference is on zeros, and no size is zero.
        tested = () if any(spec.varying for spec in specs) else specs
        record = VersionRecord(
            model=clean(manifest.model.name),
            digest=self.bundle.digest,
            files=tuple(ModelFile(name_on_device(file), file.sha256) for file in code),
            board=manifest.board.name,
            verified=verified,
            median=median,
            inputs=tuple(ModelInput(spec.dtype, spec.shape) for spec in tested),
        )
        line = self._log_line("deployed", seconds=median, message=verified_or_not(verified))
        return self.agent.client.record(record, keep, line)

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


@dataclass
class _Outcome:
    """Results for the log entry of a success."""

    seconds: float | None = None
    message: str | None = None


class _Follow:
    """Advances a stage as the agent reports its progress."""

    def __init__(self, stage: Stage, warmup: int, observer: Observer, work: WorkShown) -> None:
        self._stage = stage
        self._work = work
        self._warmup = warmup
        self._observer = observer
        self._done = 0

    def __call__(self, message: AgentMessage) -> None:
        self._work.hear(message)
        if not isinstance(message, AgentPhase):
            return
        if message.phase == "profiling":
            self._observer.end()
            return
        is_measuring = message.phase == "measuring"
        if is_measuring:
            self._observer.begin()
        if message.progress is not None:
            now = message.progress + (self._warmup if is_measuring else 0)
            self._stage.advance(now - self._done, message.phase)
            self._done = now


def _in_batches(samples: Iterator[list[Array]]) -> Iterator[list[list[Array]]]:
    """Group samples so that a batch is worth a start of the model and fits a board's memory."""
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


def name_on_device(file: FileEntry) -> str:
    """Return the name of a bundle's code file in the model's folder on a device."""
    if file.role == "library":
        return LIBRARY
    return PurePosixPath(file.path).name


def verified_or_not(verified: bool) -> str:
    return "verified" if verified else "not verified"
