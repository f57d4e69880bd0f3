"""Tuning for microcontrollers: counts every variant of each step's C on the board.

Each firmware tries another way of every step at once and times each step, so that a model needs as
many firmwares as its richest step has ways. Outputs are compared with the oracle's each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.aot.ways import VERSION, StepWays
from edgekit.base.errors import BuildError, DeviceError, UnsupportedModelError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import scratch_directory
from edgekit.base.measurer import Measurer
from edgekit.base.paths import cache_dir
from edgekit.base.report import Report
from edgekit.base.wording import counted, multiple
from edgekit.building.build import build
from edgekit.building.compile_process import compiling_in_child
from edgekit.building.products.program_in_c import CompiledProgram, ProgramInC
from edgekit.building.request import BuildRequest
from edgekit.building.tuned_steps import Unit, c_target
from edgekit.devices.base import BenchPlan, Counted
from edgekit.tuning.recorder import Limits, Searched, earlier_records, recording
from edgekit.tuning.search import Search
from edgekit.tuning.step_proposer import Assignment, Firmware, StepProposer, TunedStep, ways_in
from edgekit.verbs.fleet import on_each, raise_if_any_failed
from edgekit.verbs.verify import verify

if TYPE_CHECKING:
    from edgekit.devices.choice import Candidate
    from edgekit.devices.device import Device

_RUNS = 3
_NANOSECONDS_AN_INSTRUCTION = 1.0
"""So that numbers of a search are thousands of instructions; `TuningSession.unit` says so."""


@dataclass(frozen=True)
class TunedInC(Report):
    session: str
    measured_by: Measurer
    unit: Unit
    """What the devices count. Of instructions, `own_us` and `best_us` are thousands."""
    steps: tuple[TunedStep, ...]
    measured: int
    """The number of ways measured by this search."""
    failed: int
    known: int
    """The number of ways measured earlier."""
    own_us: float
    """The time of all steps in one inference."""
    best_us: float
    seconds: float

    def headline(self) -> str:
        gain = f", {multiple(self.own_us / self.best_us)}" if self.best_us else ""
        return (
            f"{counted(self.measured, 'way')} of {counted(len(self.steps), 'step')} measured{gain}"
        )


def tune_c(
    request: BuildRequest,
    devices: Sequence[Candidate],
    limits: Limits,
    *,
    again: bool = False,
    events: Events = SILENT,
) -> TunedInC:
    """Count every new way, or all `again`, within the limits. Later builds use the best."""
    request = replace(request, ways={}, code_format=None)
    first = devices[0].reach(events)
    unit = unit_of(first)
    target = c_target(request.board, request.toolchain, unit)
    with scratch_directory(cache_dir()) as scratch:
        with events.stage("find the steps") as stage:
            steps = steps_of(request, scratch, events)
            keys = {step.key for step in steps}
            stage.result = f"{len(keys)} kinds"
        earlier = {} if again else earlier_records(keys, target, VERSION, request.store)
        known = [record for records in earlier.values() for record in records]
        proposer = StepProposer(steps, known, target, limits.trials)
        names = [device.name for device in devices]
        about = Searched(
            target,
            len(keys),
            first.measured_by,
            "instructions" if unit == "instructions" else "seconds",
        )
        with recording(request, names, about, limits, events) as recorder:
            search = Search(proposer, recorder, limits)
            if proposer.has_work:
                runner = _FirmwareRunner(request, steps, scratch, unit)
                raise_if_any_failed(on_each(devices, runner.work_for(search, proposer), events))
    progress = proposer.progress
    return TunedInC(
        session=recorder.session,
        measured_by=about.measured_by,
        unit=unit,
        steps=proposer.tuned(),
        measured=progress.trials,
        failed=progress.failed,
        known=sum(map(len, ways_in(known).values())),
        own_us=progress.own_us,
        best_us=progress.best_us,
        seconds=search.seconds,
    )


def steps_of(request: BuildRequest, scratch: Path, events: Events) -> tuple[StepWays, ...]:
    folder = scratch / "ways"
    folder.mkdir()
    job = ProgramInC().job(request, folder, None)
    job = replace(job, tree=replace(job.tree, with_ways=True))
    with compiling_in_child(job, events) as compilation:
        compilation.imported()
        compiled = compilation.compiled()
    assert isinstance(compiled, CompiledProgram)
    return compiled.tree.ways


class _FirmwareRunner:
    """Builds firmwares and counts their steps. Each device has a thread."""

    def __init__(
        self, request: BuildRequest, steps: Sequence[StepWays], scratch: Path, unit: Unit
    ) -> None:
        self._request = request
        self._key_of = {step.step: step.key for step in steps}
        self._words_of = {step.key: step.words for step in steps}
        self._scratch = scratch
        self._unit = unit
        self._numbers = count(1)

    def work_for(
        self, search: Search[Firmware], proposer: StepProposer
    ) -> Callable[[Device, Events], None]:
        """Return the work for one device: its own ways first, then what the search proposes."""

        def work(device: Device, events: Events) -> None:
            if unit_of(device) != self._unit:
                raise UsageError(
                    f"{device.name} counts {unit_of(device)}, and another device {self._unit}",
                    hint="tune on real boards or on twins, not on both at once",
                )
            title = f"count {self._unit} on {device.name}"
            with events.stage(title, proposer.firmwares) as stage:
                own_us = self._counts({}, device)
                search.finish(Firmware({}, device.name, own_us, own_us))
                while (firmware := search.next()) is not None:
                    firmware.device, firmware.own_us = device.name, own_us
                    try:
                        self._measure(firmware, device, events)
                    except BaseException:
                        search.drop([firmware])  # for another device
                        raise
                    search.finish(firmware)
                    stage.advance(1, f"{len(firmware.ways)} ways")

        return work

    def _measure(self, firmware: Firmware, device: Device, events: Events) -> None:
        try:
            firmware.step_us = self._counts(firmware.ways, device)
        except (BuildError, UnsupportedModelError):
            firmware.error = "compile"
        except WrongNumbers:
            firmware.error = "numbers"
            if len(firmware.ways) == 1:
                ((key, way),) = firmware.ways.items()
                words = f"{self._words_of[key]}, {way.words}"
                events.warn(f"{words}: its numbers are wrong; left out")

    def _counts(self, ways: Assignment, device: Device) -> dict[str, float]:
        """Return the microseconds of each kind of step."""
        folder = self._scratch / f"firmware{next(self._numbers)}"
        bundle = build(replace(self._request, ways=ways), folder, use_cache=False).bundle
        purpose = f"tune {self._request.source.name}"
        with device.opened(bundle, purpose=purpose) as session:
            if not verify(bundle, session).passed:
                raise WrongNumbers(
                    f"{device.name} computes other numbers than the oracle",
                    hint="`edgekit verify` shows which",
                )
            samples = session.bench(bundle.reference_inputs(), BenchPlan(0, _RUNS, 0.0, None, 1))
        if samples.counted is None:
            raise DeviceError(f"{device.name} counts no steps", hint="tune on a microcontroller")
        sums: dict[str, list[float]] = {}
        for step in samples.counted.steps:
            if step.name in self._key_of:
                times = sums.setdefault(self._key_of[step.name], [])
                times.append(microseconds(step.count, samples.counted))
        return {key: sum(times) / len(times) for key, times in sums.items()}


class WrongNumbers(DeviceError):
    """The firmware's outputs differ from the oracle's."""


def unit_of(device: Device) -> Unit:
    """Return what a microcontroller counts in."""
    return device.firmware().unit


def microseconds(count: int, counted: Counted) -> float:
    if counted.clock is None:
        return count * _NANOSECONDS_AN_INSTRUCTION / 1e3
    return count / counted.clock * 1e6
