"""This machine as a device: every model runs in a child process, so a crash is only reported."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from edgekit.base.children import run
from edgekit.base.errors import BundleError, DeviceError, MissingToolError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import scratch_directory
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.paths import cache_dir
from edgekit.base.roof import Limits
from edgekit.base.wording import counted
from edgekit.devices.base import (
    BenchPlan,
    BenchSamples,
    RunResult,
    SessionBase,
)
from edgekit.devices.bench_answer import BenchAnswer, decoded_answer
from edgekit.devices.device import Device
from edgekit.devices.limits.measure import NATIVE, SECONDS, compile_program, parse_limits
from edgekit.devices.linux.observing import observe_this_machine
from edgekit.devices.linux.region_work import Told, WorkShown, working_in
from edgekit.devices.tensors import in_order, named_outputs
from edgekit.profiles.board import load_board, toolchain_of
from edgekit.project.file import LOCAL

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.errors import EdgekitError
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.local.worker_process import WorkerProcess

DEFAULT_TIMEOUT_SECONDS = 600.0
"""Seconds without a sign of life; neither loading nor one inference should take as long."""

_ELF_MACHINE = slice(18, 20)


@dataclass(frozen=True)
class LocalDevice(Device):
    what: ClassVar[str] = "this machine"
    instead: ClassVar[str] = "name a device; `edgekit device list` shows them"
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    name: str = field(default="local", init=False)

    @contextmanager
    def opened(
        self, bundle: Bundle, *, purpose: str = "run", events: Events = SILENT
    ) -> Iterator[LocalSession]:
        self._check(bundle)
        yield LocalSession(self, bundle, events)

    def worker(self) -> list[str]:
        """Return the module that runs models in a process of its own, and its arguments."""
        return worker_arguments()

    def _check(self, bundle: Bundle) -> None:
        """Refuse a bundle that can't run on the device."""
        _check_machine(bundle)

    def check_free(self) -> None:
        """Do nothing: this machine is shared."""


@dataclass(frozen=True)
class LocalSession(SessionBase):
    """A bundle on this machine. Every call runs in a new process, so calls do not affect each
    other."""

    device: LocalDevice
    bundle: Bundle
    events: Events
    told: Told = field(default_factory=Told)
    """What the model's regions said of how they run."""

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def measured_by(self) -> Measurer:
        return self.device.measured_by

    @property
    def installed(self) -> None:
        return None

    def run_all(self, samples: Iterable[Mapping[str, Array]]) -> Generator[RunResult, None, None]:
        with self._loaded(threads=None) as (worker, *_):
            for sample in samples:
                arrays = in_order(self.bundle, sample)
                with WorkShown(self.events, self.name, self.told) as work:
                    for frame in worker.ask("running", {"do": "run"}, arrays):
                        work.hear(working_in(frame.message))
                outputs = named_outputs(self.bundle, frame.arrays, arrays)
                yield RunResult(outputs, frame.message["nanoseconds"] / 1e9)

    def make_current(self, *, verified: bool, median: float | None, keep: int) -> None:
        """Do nothing: the bundle is where it was built."""

    def log_failure(self, event: str, error: EdgekitError) -> None:
        """Do nothing: the caller gets the error."""

    def bench(self, inputs: Mapping[str, Array], plan: BenchPlan) -> BenchSamples:
        request = {
            "do": "bench",
            "warmup": plan.warmup,
            "runs": plan.runs,
            "seconds": plan.seconds,
            "profiled": plan.profiled,
            "traced": plan.traced,
        }
        total = plan.warmup + plan.runs if plan.seconds == 0 else None
        with (
            self._loaded(plan.threads) as (worker, threads, load_nanoseconds),
            observe_this_machine(plan.sensors) as observer,
            self.events.stage(f"measure on {self.name}", total) as stage,
            WorkShown(self.events, self.name, self.told, aloud=False) as work,
        ):
            done = 0
            for frame in worker.ask("being measured", request, in_order(self.bundle, inputs)):
                message = working_in(frame.message)
                work.hear(message)
                if message is not None:
                    continue
                if "progress" not in frame.message:
                    stage.result = counted(frame.arrays[0].size, "run")
                    sender = f"the process of the model on {self.name}"
                    answer = decoded_answer(BenchAnswer, frame.message, sender)
                    nanoseconds = tuple(int(value) for value in frame.arrays[0])
                    return replace(
                        answer.samples(nanoseconds, threads, load_nanoseconds),
                        observed=observer.end(),
                        told=tuple(self.told.notes),
                        warned=tuple(self.told.warnings),
                    )
                if frame.message["phase"] == "profiling":
                    observer.end()
                    continue
                warm = frame.message["phase"] == "measuring"
                if warm:
                    observer.begin()
                now = int(frame.message["progress"]) + (plan.warmup if warm else 0)
                stage.advance(now - done, "" if warm else "warming up")
                done = now
        raise DeviceError("the measurement gave no answer", hint="report this: it is a bug")

    def limits(self, threads: int) -> Limits:
        board = load_board(LOCAL)
        with (
            self.events.stage(f"measure the limits of {self.name}"),
            scratch_directory(cache_dir()) as folder,
        ):
            program = compile_program(toolchain_of(board), NATIVE, folder)
            done = run([str(program), str(threads)], limit_s=SECONDS)
        return parse_limits(done.output, threads, self.name)

    @contextmanager
    def _loaded(self, threads: int | None) -> Iterator[tuple[WorkerProcess, int, int]]:
        from edgekit.devices.local.worker_process import started_worker

        self.bundle.check_code()
        environment = {} if threads is None else {"TVM_NUM_THREADS": str(threads)}
        with started_worker(
            self.device.worker(), environment, self.name, self.device.timeout
        ) as worker:
            load = {"do": "load", "library": str(self.bundle.library.resolve())}
            with WorkShown(self.events, self.name, self.told) as work:
                for frame in worker.ask("loading", load):
                    work.hear(frame.message)
            yield worker, int(frame.message["threads"]), int(frame.message["nanoseconds"])


def worker_arguments() -> list[str]:
    """Return the module that runs models in a process of its own, and its arguments."""
    return ["edgekit.devices.local.worker", str(_runtime_library())]


def _runtime_library() -> Path:
    """Find TVM's runtime without importing TVM."""
    found = importlib.util.find_spec("tvm")
    for folder in (found.submodule_search_locations or ()) if found else ():
        library = Path(folder) / "lib" / "libtvm_runtime.so"
        if library.is_file():
            return library
    raise MissingToolError(
        "TVM's runtime library is not installed",
        hint="pip install --force-reinstall edgekit installs matching versions",
    )


def _check_machine(bundle: Bundle) -> None:
    """Refuse a library for another CPU family before the loader does."""
    if bundle.manifest.board.in_engine:
        raise _for_another_machine(bundle)
    with bundle.library.open("rb") as library:
        header = library.read(64)
    with Path("/proc/self/exe").open("rb") as ourselves:
        ours = ourselves.read(64)
    if header[:4] != b"\x7fELF":
        raise BundleError(
            f"the library of the bundle {bundle.path} is not a shared library",
            hint="build the bundle again",
        )
    if header[_ELF_MACHINE] != ours[_ELF_MACHINE] or header[4] != ours[4]:
        raise _for_another_machine(bundle)


def _for_another_machine(bundle: Bundle) -> DeviceError:
    return DeviceError(
        f"the bundle was built for the board {bundle.manifest.board.name}, whose code does not "
        f"run on this machine ({platform.machine()})",
        hint=f"build it again with {option('board', 'local')}",
    )
