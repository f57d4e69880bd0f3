"""Microcontrollers on a serial line as devices. Another firmware is replaced by the bundle's, and
models run in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from edgekit.aot.firmware.firmware_file import FirmwareFile, read_firmware
from edgekit.base import wording
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer, core_measurer
from edgekit.base.metrics import HostState
from edgekit.base.options import option
from edgekit.devices.base import (
    BenchPlan,
    BenchSamples,
    DeviceSilent,
    Installed,
    MemoryUse,
    RunResult,
    SessionBase,
)
from edgekit.devices.device import Device
from edgekit.devices.flash.job import FlashJob
from edgekit.devices.lending import FARM, Lender, Lent
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS
from edgekit.devices.power import revived
from edgekit.devices.serial.client import Client
from edgekit.devices.serial.faults import explain_fault, stack_overflow
from edgekit.devices.serial.joined_line import JoinedLineHost
from edgekit.devices.serial.lab_host import LabHost, PortReport
from edgekit.devices.serial.labgrid import acquired
from edgekit.devices.serial.link import BoardRestarted, FirmwareFault, Link, NoAnswer
from edgekit.devices.serial.lock import PATIENCE
from edgekit.devices.serial.measure import counted, kernel_times
from edgekit.devices.serial.messages import Hello, Inference, ModelOnBoard
from edgekit.devices.serial.port import Line, LocalLine, held
from edgekit.devices.tensors import in_order, named_outputs, program_outputs
from edgekit.project.devices import DeviceEntry, leads_to_program, twin_identity

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.errors import EdgekitError
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.linux.hostkeys import Ask
    from edgekit.profiles.board import Board

_HELLO_SECONDS = 2.5
_AFTER_WRITING_SECONDS = 8.0
_EMULATED_SECONDS = 15.0
"""Time limit of either; an emulator shares this machine with other processes."""
_SECONDS_BETWEEN_LOOKS = 5.0
_SECONDS_BETWEEN_PLACES = 60.0
"""The interval for labgrid's places: each look acquires the place, which takes seconds."""
_TRIES = 3
"""Attempts at an inference whose board is reset in the middle."""


@dataclass(frozen=True)
class EmulatedChip:
    """The properties of an emulated microcontroller."""

    clock: int
    """Clock of its timer in Hz."""
    folder: Path | None = None
    """Folder of its sockets; None if another host has it."""


@dataclass(frozen=True)
class SerialDevice(Device):
    """A microcontroller on a serial line. A farm leases it to one client at a time."""

    what: ClassVar[str] = "a microcontroller"
    instead: ClassVar[str] = (
        "edgekit flash writes its firmware; edgekit monitor shows its serial output"
    )
    name: str
    board: Board
    port: str
    baud: int
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    probe: str | None = None
    gdb: str = "gdb-multiarch"
    chip: EmulatedChip | None = None
    host: LabHost | JoinedLineHost | None = None
    """Host that has the port; None if this machine has it."""
    labgrid: str | None = None
    """Labgrid place that provides the port."""
    entry: DeviceEntry | None = None
    """Entry of the device; None for a twin."""
    lender: Lender = FARM

    def lent_by(self, lender: Lender) -> SerialDevice:
        return replace(self, lender=lender)

    @contextmanager
    def opened(
        self, bundle: Bundle, *, purpose: str = "run", events: Events = SILENT
    ) -> Iterator[SerialSession]:
        with self._lent(purpose, events), bundle.held_firmware() as path:
            firmware = read_firmware(path)
            self.check_board(bundle)
            with self.flashed(firmware, events) as (client, hello, sent):
                model = _model_of(bundle, client, hello, self.name)
                yield SerialSession(self, bundle, firmware, client, hello, model, sent, events)

    @property
    def is_emulated(self) -> bool:
        return self.chip is not None or leads_to_program(self.port)

    @property
    def unit(self) -> Literal["cycles", "instructions"]:
        return "cycles" if self.chip is None else "instructions"

    def check_free(self) -> None:
        self.lender.check_free(self.name, self._identity)
        with self.held(patience=0):
            pass

    @property
    def _identity(self) -> str:
        if self.host is not None:
            return f"{self.port} on {self.host.entry.identity}"
        return self.port if self.chip is None else twin_identity(self.name)

    def _lent(self, purpose: str, events: Events) -> AbstractContextManager[Lent]:
        return self.lender.lent(
            self.name, purpose, address=self._identity, wait=self.timeout, events=events
        )

    def checkable(self) -> SerialDevice:
        if self.host is None:
            raise self._lacks("holds nothing but its firmware", "boards with Linux are checked")
        return self

    def check(self, *, ask: Ask | None = None, fingerprint: str | None = None) -> PortReport:
        problem = self.meet(ask=ask, fingerprint=fingerprint)
        if problem is not None:
            raise problem
        address = str(self.host.entry.address) if self.host is not None else ""
        return PortReport(self.name, self.board.name, self.port, address)

    def meet(self, *, ask: Ask | None = None, fingerprint: str | None = None) -> DeviceError | None:
        if self.host is None:
            return None
        with self.host.connected(ask, fingerprint) as host:
            try:
                with host.held(self.port) as line, line.opened(self.baud):
                    return None
            except DeviceError as error:
                return error

    def firmware(self) -> SerialDevice:
        return self

    def line(self) -> SerialDevice:
        return self

    def check_board(self, bundle: Bundle) -> None:
        if bundle.manifest.board.name != self.board.name:
            raise DeviceError(
                f"the bundle was built for the board {bundle.manifest.board.name}, but {self.name} "
                f"is a {self.board.name}",
                hint=f"build it again with {option('board', self.board.name)}",
            )

    @contextmanager
    def flashed(
        self, firmware: FirmwareFile, events: Events = SILENT, *, again: bool = False
    ) -> Iterator[tuple[Client, Hello, int]]:
        with self._lent("flash", events), self.held() as line:
            if not again and not line.is_blank():
                with self.connected(line) as client:
                    hello = self._hello_or_none(client)
                    if hello is not None and hello.build_id == firmware.build_id:
                        yield client, hello, 0
                        return
            sent = self.write(firmware, events, line)
            if self.entry is not None:
                revived(self.entry, lambda: self._greet(line, firmware), events)
            with self.connected(line) as client:
                yield client, self._hello_of_new(client, firmware), sent

    @contextmanager
    def held(self, patience: float = PATIENCE, *, looking: bool = False) -> Iterator[Line]:
        """Hold the line for the block; DeviceError if it is in use. `looking` is for a farm's
        checks, which give way to users."""
        if self.host is not None:
            with self.host.held(self.port, patience, looking=looking) as line:
                yield line
        elif self.labgrid is not None:
            place = acquired(self.labgrid, looking=looking)
            with place as lent, held(lent.serial, patience, looking=looking):
                yield LocalLine(lent.serial)
        else:
            with held(self.port, patience, looking=looking):
                yield self._own_line

    @contextmanager
    def looking(self) -> Iterator[Callable[[], AbstractContextManager[Line]]]:
        """Yield a function that takes the line for a moment; a remote line keeps one connection."""
        if self.host is None:
            yield lambda: self.held(looking=True)
            return
        with self.host.connected() as host:
            yield lambda: host.held(self.port, looking=True)

    @property
    def seconds_between_looks(self) -> float:
        return _SECONDS_BETWEEN_PLACES if self.labgrid else _SECONDS_BETWEEN_LOOKS

    def check_answer(self, line: Line, seconds: float) -> Measurer:
        with self.connected(line) as client:
            hello = self._hello_or_none(client, seconds)
        if hello is None:
            raise DeviceError(
                f"{self.name} does not answer: it is off, or has no firmware of edgekit",
                hint="check its power and the port; edgekit flash writes its firmware",
            )
        return self._measured_by(hello)

    def _measured_by(self, hello: Hello) -> Measurer:
        return "emulator" if self.is_emulated else core_measurer(hello.cpu)

    @contextmanager
    def connected(self, line: Line | None = None) -> Iterator[Client]:
        with ExitStack() as stack:
            ours = stack.enter_context(self.held()) if line is None else line
            port = stack.enter_context(ours.opened(self.baud))
            yield Client(Link(port, self.name, self.baud), self.name)

    @property
    def _own_line(self) -> LocalLine:
        return LocalLine(self.port, None if self.chip is None else self.chip.folder)

    def write(
        self, firmware: FirmwareFile, events: Events = SILENT, line: Line | None = None
    ) -> int:
        """Flash the firmware; the port must be closed, because some tools use it themselves."""
        if self.board.flash is None:
            raise UsageError(
                f"edgekit does not know how to write to a {self.board.name}",
                hint="add [flash] to the board's profile, or write the bundle's firmware.elf "
                "yourself",
            )
        job = FlashJob(
            firmware=firmware,
            board=self.board,
            flash=self.board.flash,
            device=self.name,
            port=self.port,
            probe=self.probe,
            twin=None if self.chip is None else self.chip.folder,
            gdb=self.gdb,
        )
        return (line or self._own_line).write(job, events)

    def patience(self, usual: float) -> float:
        """Return the seconds to wait for a hello; an emulated board gets more than the `usual`
        ones."""
        return usual if self.chip is None else _EMULATED_SECONDS

    def _hello_or_none(self, client: Client, seconds: float = _HELLO_SECONDS) -> Hello | None:
        try:
            return client.hello(self.patience(seconds))
        except NoAnswer:
            return None

    def _greet(self, line: Line, firmware: FirmwareFile) -> None:
        """Open the line for a moment and check that the firmware answers."""
        with self.connected(line) as client:
            self._hello_of_new(client, firmware)

    def _hello_of_new(self, client: Client, firmware: FirmwareFile) -> Hello:
        try:
            hello = client.hello(self.patience(_AFTER_WRITING_SECONDS))
        except NoAnswer as error:
            raise DeviceSilent(
                f"the firmware was written to {self.name}, but nothing answers on {self.port}",
                hint="check that the port is this board's, and that its baud rate is the profile's",
            ) from error
        if hello.build_id != firmware.build_id:
            raise DeviceError(
                f"{self.name} runs another firmware than the one that was written to it",
                hint=f"check that {option('port')} is that of the board on the probe",
            )
        return hello


@dataclass(frozen=True)
class SerialSession(SessionBase):
    """A model in a microcontroller's firmware."""

    device: SerialDevice
    bundle: Bundle
    firmware: FirmwareFile
    client: Client
    hello: Hello
    model: tuple[int, ModelOnBoard]
    sent: int
    events: Events

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def measured_by(self) -> Measurer:
        return self.device._measured_by(self.hello)

    @property
    def installed(self) -> Installed:
        size = sum(segment.file_size for segment in self.firmware.segments)
        return Installed(agent=0, runtime=0, model=size, sent=self.sent)

    def run_all(self, samples: Iterable[Mapping[str, Array]]) -> Generator[RunResult, None, None]:
        for sample in samples:
            data = self._bytes(sample)
            with self._faults_explained():
                outputs, seconds = self._inference(data)
            yield RunResult(outputs, seconds)

    def make_current(self, *, verified: bool, median: float | None, keep: int) -> None:
        """Do nothing: a microcontroller holds one firmware."""

    def log_failure(self, event: str, error: EdgekitError) -> None:
        """Do nothing: a microcontroller has no log."""

    def bench(self, inputs: Mapping[str, Array], plan: BenchPlan) -> BenchSamples:
        data = self._bytes(inputs)
        # On an emulated board every run takes the same number of instructions.
        warmup = plan.warmup if self.device.chip is None else 0
        seconds = plan.seconds if self.device.chip is None else 0.0
        cycles: list[int] = []
        nanoseconds: list[int] = []
        with (
            self._faults_explained(),
            self.events.stage(f"measure on {self.name}", warmup + plan.runs) as stage,
        ):
            self._write(data)
            for _ in range(warmup):
                self._repeat(data)
                stage.advance(1, "warming up")
            ends_at = time.monotonic() + seconds
            while len(cycles) < plan.runs or time.monotonic() < ends_at:
                inference, took = self._repeat(data)
                cycles.append(inference.cycles)
                nanoseconds.append(round(took * 1e9))
                stage.advance()
            steps = self._steps(data)
            marks = self.client.memory()
            if marks.stack_used >= marks.stack:
                raise stack_overflow(self.name, marks.stack)
            stage.result = wording.counted(len(cycles), "run")
        clock = None if self.device.chip is None else self.device.chip.clock
        found = counted(cycles, steps, self.hello.clock, clock)
        core = self.hello.clock / 1e6 if self.device.chip is None else None
        state = HostState(governor=None, frequency_mhz=core, load_average=None, cores=1)
        return BenchSamples(
            nanoseconds=tuple(nanoseconds),
            warmup=warmup,
            threads=1,
            memory=MemoryUse(before_model=0, peak=self.model[1].arena + marks.stack_used),
            host_before=state,
            host_after=state,
            preemptions=None,
            kernels=kernel_times(found) if plan.profiled else None,
            counted=found,
        )

    def _bytes(self, inputs: Mapping[str, Array]) -> list[bytes]:
        import numpy as np

        return [np.ascontiguousarray(array).tobytes() for array in in_order(self.bundle, inputs)]

    def _write(self, data: list[bytes]) -> None:
        for index, piece in enumerate(data):
            self.client.write(self.model[0], index, piece)

    def _inference(self, data: list[bytes]) -> tuple[dict[str, Array], float]:
        """Run an inference; repeat it from the start if a reset board lost its inputs."""
        for remaining in reversed(range(_TRIES)):
            try:
                self._write(data)
                _, seconds = self._run()
                return self._outputs(), seconds
            except BoardRestarted:
                if not remaining:
                    raise
                self.events.warn(f"{self.name} was reset; repeating the inference")
                self.client.hello(self.device.patience(_AFTER_WRITING_SECONDS))
        raise AssertionError("the last try returns or raises")

    def _run(self) -> tuple[Inference, float]:
        began = time.monotonic()
        inference = self.client.run(self.model[0], self.device.timeout)
        took = time.monotonic() - began
        if inference.status != 0:
            indices = self.client.step_name(self.model[0], inference.status - 1)
            raise DeviceError(
                f"an index in {indices} is outside of its tensor",
                hint="feed indices that lie within the tensor; others were clamped",
            )
        return inference, (inference.cycles / self.hello.clock if not self.device.chip else took)

    def _repeat(self, data: list[bytes]) -> tuple[Inference, float]:
        if not self.model[1].keeps_inputs:
            self._write(data)
        return self._run()

    def _steps(self, data: list[bytes]) -> list[tuple[str, int]]:
        if not self.model[1].keeps_inputs:
            self._write(data)
        index, model = self.model
        return [
            (
                self.client.step_name(index, step),
                self.client.run_step(index, step, self.device.timeout).cycles,
            )
            for step in range(model.steps)
        ]

    def _outputs(self) -> dict[str, Array]:
        import numpy as np

        from edgekit.base.arrays import numpy_dtype

        outputs = []
        for index, spec in enumerate(program_outputs(self.bundle)):
            dtype = numpy_dtype(spec.dtype)
            data = self.client.read(self.model[0], index, spec.elements * dtype.itemsize)
            outputs.append(np.frombuffer(data, dtype).reshape(spec.shape).copy())
        return named_outputs(self.bundle, outputs, ())

    @contextmanager
    def _faults_explained(self) -> Iterator[None]:
        try:
            yield
        except FirmwareFault as error:
            raise explain_fault(self.name, error.fault, self.firmware, self.hello.stack) from error


def _model_of(
    bundle: Bundle, client: Client, hello: Hello, device: str
) -> tuple[int, ModelOnBoard]:
    """Return the index of the bundle's model in the firmware, checked against the bundle."""
    models = [client.model(index) for index in range(hello.models)]
    wanted = bundle.manifest.model.sha256
    index = next((i for i, model in enumerate(models) if model.sha256 == wanted), None)
    if index is None and len(models) == 1:
        index = 0
    if index is None:
        raise DeviceError(
            f"the firmware on {device} does not hold the model of {bundle.path}",
            hint="build the bundle again",
        )
    model = models[index]
    if model.failed_check:
        raise DeviceError(
            f"the model on {device} reports that its check {model.failed_check} failed: a library "
            "needs more scratch memory than was planned",
            hint="build the bundle again; report this if it happens again",
        )
    from edgekit.base.arrays import numpy_dtype

    inputs = tuple(entry.spec for entry in bundle.manifest.inputs)  # no size of theirs varies
    for output, specs in ((False, inputs), (True, program_outputs(bundle))):
        if len(specs) != (model.outputs if output else model.inputs):
            raise _unlike(bundle, device)
        for place, spec in enumerate(specs):
            size = spec.elements * numpy_dtype(spec.dtype).itemsize
            if client.tensor(index, place, output=output).bytes != size:
                raise _unlike(bundle, device)
    return index, model


def _unlike(bundle: Bundle, device: str) -> DeviceError:
    return DeviceError(
        f"the model on {device} has other inputs and outputs than the bundle {bundle.path}",
        hint="build the bundle again",
    )
