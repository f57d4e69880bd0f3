"""Devices and opened bundles, as Python sees them: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.api.inputs import Inputs, checked_arrays, choose_samples
from edgekit.api.keywords import (
    BenchKeywords,
    BundleLike,
    ToleranceKeywords,
    Unpack,
    shape_given,
)
from edgekit.base.cancel import Cancellation
from edgekit.base.errors import UsageError
from edgekit.base.events import Events
from edgekit.base.options import option
from edgekit.base.wording import counted
from edgekit.bundle.folder import Bundle, open_bundle
from edgekit.devices.carried import CarriedState, run_in_order
from edgekit.project.workspace import WorkspaceData

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.devices.base import BenchPlan, Installed, Session
    from edgekit.devices.device import Device
    from edgekit.verbs.bench_report import BenchReport
    from edgekit.verbs.verify import VerifyReport


@dataclass(frozen=True)
class Setting:
    """What all work of a workspace shares."""

    data: WorkspaceData
    events: Events
    cancellation: Cancellation | None = None
    cluster: str | None = None
    """Where models and candidates are compiled; None is this host."""

    def working(self) -> AbstractContextManager[None]:
        """Return a block that a cancellation ends."""
        return nullcontext() if self.cancellation is None else self.cancellation.ending()

    def bundle(self, bundle: BundleLike) -> Bundle:
        """Open a bundle, unless it is open."""
        return bundle if isinstance(bundle, Bundle) else open_bundle(self.data.path(bundle))


@dataclass(frozen=True)
class DeviceHandle:
    """A device of a workspace. Nothing is connected or started until it is opened."""

    name: str
    board: str
    """The name of the board's profile."""
    setting: Setting = field(repr=False)
    reach: Callable[[], Device] = field(repr=False)

    @cached_property
    def device(self) -> Device:
        """The device behind the handle; an emulated one is started."""
        return self.reach()

    @contextmanager
    def open(self, bundle: BundleLike, *, purpose: str = "run") -> Iterator[BundleSession]:
        """Send a bundle to the device and hold the device for the block."""
        opened = self.setting.bundle(bundle)
        with (
            self.setting.working(),
            self.device.opened(opened, purpose=purpose, events=self.setting.events) as session,
        ):
            yield BundleSession(opened, session, self.setting)


@dataclass(frozen=True)
class BundleSession:
    """A bundle on a device, to be run and measured any number of times."""

    bundle: Bundle
    session: Session = field(repr=False)
    setting: Setting = field(repr=False)

    @property
    def device(self) -> str:
        """The name of the device."""
        return self.session.name

    @property
    def installed(self) -> Installed | None:
        """The sizes of the installed files; None if the device needs none."""
        return self.session.installed

    def run(self, inputs: Inputs = None, *, allow_nonfinite: bool = False) -> dict[str, Array]:
        """Run one inference and return the outputs by name.

        `inputs` are arrays by name; without any, the bundle's reference input is run. A state that
        they leave out has its first value.
        """
        chosen = self._sample(inputs, allow_nonfinite)
        return self.session.run(chosen).outputs

    def run_all(
        self, samples: Iterable[Mapping[str, Any]], *, allow_nonfinite: bool = False
    ) -> Iterator[dict[str, Array]]:
        """Run one sample after another with the model loaded once, and yield the outputs.

        A model with state goes on with what the sample before left.
        """
        entries = self.bundle.manifest.inputs
        arrays = (
            checked_arrays(sample, entries, allow_nonfinite=allow_nonfinite) for sample in samples
        )
        results = run_in_order(self.session, arrays, CarriedState(self.bundle))
        try:
            for result in results:
                yield result.outputs
        finally:
            results.close()

    def bench(
        self,
        inputs: Inputs = None,
        *,
        allow_nonfinite: bool = False,
        at: Mapping[str, Any] | None = None,
        **how: Unpack[BenchKeywords],
    ) -> BenchReport:
        """Measure one inference after another, and keep the measurement in the store.

        `at` cuts the reference inputs to other sizes: `{"ids": "1x64"}`.
        """
        from edgekit.verbs.bench import bench

        return bench(
            self.bundle,
            self.session,
            bench_plan(how),
            self.setting.events,
            inputs=cut_inputs(self.bundle, at, inputs)
            if at
            else None
            if inputs is None
            else self._sample(inputs, allow_nonfinite),
            purpose="bench",
            store=self.setting.data.store,
            trace=trace_file(how),
        )

    def verify(self, **tolerance: Unpack[ToleranceKeywords]) -> VerifyReport:
        """Compare the outputs for the bundle's reference vectors with the oracle's.

        The report holds a failure too: look at `passed`.
        """
        from edgekit.models.comparison import Widening
        from edgekit.verbs.verify import verify

        return verify(
            self.bundle, self.session, widening=Widening(**tolerance), events=self.setting.events
        )

    def _sample(self, inputs: Inputs, allow_nonfinite: bool) -> Mapping[str, Array]:
        chosen = choose_samples(self.bundle, inputs, allow_nonfinite, self.setting.data.start)
        if chosen.samples is None:
            return self.bundle.reference_inputs()
        sample = only_sample(chosen.count, next(chosen.samples).inputs)
        return CarriedState(self.bundle).complete(sample)


def cut_inputs(bundle: Bundle, at: Mapping[str, Any], inputs: Inputs) -> Mapping[str, Array]:
    """Return the reference inputs of a bundle, cut to the sizes `at`."""
    from edgekit.bundle.sizes import inputs_at

    if inputs:
        raise UsageError(
            f"{option('at')} cuts the reference inputs, and {option('input')} gives others",
            hint="leave one of them out: inputs of your own have a size already",
        )
    return inputs_at(bundle, {name: shape_given("at", name, value) for name, value in at.items()})


def only_sample(count: int, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return the inputs of a benchmark or a run, which take one sample."""
    if count > 1:
        raise UsageError(
            f"{counted(count, 'sample')} were given, and a benchmark repeats one",
            hint="give every input one file",
        )
    return inputs


def bench_plan(how: Mapping[str, Any]) -> BenchPlan:
    """Make a plan of keyword arguments; TypeError for an unknown name."""
    from edgekit.verbs.bench import plan_bench

    given = {"runs": None, "seconds": None, "warmup": 10, "threads": None, **how}
    given["traced"] = given.pop("trace", None) is not None
    return plan_bench(**{"profiled" if name == "profile" else name: given[name] for name in given})


def trace_file(how: BenchKeywords) -> Path | None:
    """Return the file that a timeline is asked for."""
    trace = how.get("trace")
    return None if trace is None else Path(trace)
