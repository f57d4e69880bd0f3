"""What takes turns: a bundle on a device, or a runtime in a process of its own."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

import numpy as np

from edgekit.base.arrays import Array
from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import ModelError
from edgekit.devices.base import BenchPlan, Session
from edgekit.devices.linux.observing import observe_this_machine
from edgekit.verbs.beside.runtimes import RUNTIMES, Given

MOST_RUNS = 2000
"""Limit of one turn."""
_SECONDS_TO_LOAD = 600.0
_WARMUP = 2


@dataclass(frozen=True)
class Setup:
    """What the process of a runtime is set up with."""

    runtime: str
    given: Given


@dataclass(frozen=True)
class Opened:
    """The first answer of that process."""

    outputs: tuple[Array, ...]
    memory: int | None
    """Bytes that loading and running the model added at the peak."""


@dataclass(frozen=True)
class Turn:
    nanoseconds: tuple[int, ...]
    watts: float | None = None

    @property
    def median(self) -> float:
        """Median seconds of an inference."""
        return statistics.median(self.nanoseconds) / 1e9


class Contender(Protocol):
    def turn(self, seconds: float) -> Turn:
        """Compute inferences for so long, after two to warm up."""
        ...


@dataclass(frozen=True)
class BundleContender:
    session: Session
    inputs: Mapping[str, Array]
    threads: int

    def turn(self, seconds: float) -> Turn:
        plan = BenchPlan(_WARMUP, 1, seconds, self.threads)
        return Turn(self.session.bench(self.inputs, plan).nanoseconds)


@dataclass(frozen=True)
class RuntimeContender:
    name: str
    child: Child
    memory: int | None
    max_error: float

    @property
    def title(self) -> str:
        """The runtime's name and version."""
        runtime = RUNTIMES[self.name]
        try:
            return f"{runtime.title} {version(runtime.distribution)}"
        except PackageNotFoundError:
            return runtime.title

    def turn(self, seconds: float) -> Turn:
        with observe_this_machine(True) as observer:
            observer.begin()
            turn: Turn = _asked(self.name, self.child, seconds)
            observed = observer.end()
        power = None if observed is None else observed.power
        return turn if power is None else replace(turn, watts=power.watts)


@contextmanager
def started(name: str, given: Given) -> Iterator[RuntimeContender]:
    """Start a runtime, and compare its outputs with the expected ones."""
    setup = Setup(name, given)
    threads = {"OMP_NUM_THREADS": str(given.threads), "ORT_DISABLE_TELEMETRY": "1"}
    with Child("edgekit.verbs.beside.worker", setup=setup, environment=threads) as child:
        child.start()
        try:
            opened: Opened = child.receive(_SECONDS_TO_LOAD)
        except ChildGone as gone:
            raise _crashed(name, gone) from gone
        yield RuntimeContender(name, child, opened.memory, _error(name, given, opened))


def _error(name: str, given: Given, opened: Opened) -> float:
    """Return the largest difference from the expected outputs."""
    expected = list(given.outputs.values())
    shapes = [array.shape for array in opened.outputs]
    if shapes != [array.shape for array in expected]:
        raise ModelError(
            f"{RUNTIMES[name].title} returns outputs of {shapes}, which are not the model's",
            hint=f"leave {name} out of the runtimes",
        )
    pairs = zip(opened.outputs, expected, strict=True)
    differences = [
        float(np.max(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)), initial=0.0))
        for ours, theirs in pairs
    ]
    return max(differences, default=0.0)


def _asked(name: str, child: Child, seconds: float) -> Turn:
    try:
        turn: Turn = child.ask(seconds, _SECONDS_TO_LOAD)
    except ChildGone as gone:
        raise _crashed(name, gone) from gone
    return turn


def _crashed(name: str, gone: ChildGone) -> ModelError:
    return ModelError(
        f"{RUNTIMES[name].title} crashed with the model: {gone.reason}",
        hint=f"leave {name} out of the runtimes",
        details=gone.lines[-8:],
    )
