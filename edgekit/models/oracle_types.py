"""The interface of an oracle, and code that all oracles share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Protocol

from edgekit.base.arrays import Array
from edgekit.base.errors import EdgekitError, MissingToolError, ModelError
from edgekit.base.interrupts import interrupts_deferred
from edgekit.models.comparison import Leeway


class Oracle(Protocol):
    """An independent runtime that has the model loaded."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model and return its outputs by name."""

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        """Return the leeway of each of the `outputs` of `run` for rounding inside the model.

        An output that no rounding reaches has none.
        """

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        """Return the seconds of each of `runs` runs, with the runtime's fast kernels on `threads`
        threads; `run` uses the kernels that are easiest to trust.
        """


def package(module: str, extra: str) -> ModuleType:
    try:
        # Ctrl-C while a native module starts would surface as an ImportError.
        with interrupts_deferred():
            return import_module(module)
    except ImportError as error:
        raise MissingToolError(
            f"the reference outputs come from the Python package {module.partition('.')[0]}, "
            "which is not installed",
            hint=f"pip install 'edgekit[{extra}]'",
        ) from error


def installed_or_unknown(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "of unknown version"


@contextmanager
def blamed(oracle: Oracle) -> Iterator[None]:
    """Turn a failure of the oracle into a ModelError that names it."""
    try:
        yield
    except EdgekitError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelError(
            f"{oracle.name} {oracle.version} cannot run the model: "
            f"{lines[0] if lines else type(error).__name__}",
            hint="the model is broken, or needs another version of that package",
            details=tuple(lines[1:9]),
        ) from error


def seconds_of(call: Callable[[], object], runs: int) -> list[float]:
    call()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return seconds
