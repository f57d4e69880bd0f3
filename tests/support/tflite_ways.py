"""Cases of TFLite operators, many in one model, in a library and as portable C, against LiteRT."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from edgekit.base.errors import EdgekitError, ModelError, UnsupportedModelError
from edgekit.models.comparison import IN_16_BITS, SHARE_OFF_BY_A_STEP
from edgekit.models.model import ModelSource, import_model, open_model
from edgekit.models.oracle import oracle_for
from support.elementwise import RIGHT, Verdict, difference
from support.tflite_models import Described, run_as_deployed, tflite_bytes

CASES_A_MODEL = 24
QUANTISED = ("int8", "uint8", "int16")


class Case(Protocol):
    """One use of an operator with one type."""

    @property
    def operator(self) -> str: ...

    @property
    def dtype(self) -> str:
        """Return the type; `q` before it stands for quantised numbers."""

    @property
    def exactness(self) -> float:
        """Return the factor of the tolerances of elementwise operators."""

    def described(self, prefix: str) -> Described: ...


Results = list[np.ndarray]
_STOPPED = ("ADD", "ADD_N", "SUB", "MUL", "DIV")
"""Operators whose reference kernels give the largest number for infinity."""


@contextmanager
def model_of(cases: Sequence[Case]) -> Iterator[tuple[ModelSource, dict[str, np.ndarray]]]:
    """Yield a file of many cases, and its inputs."""
    parts = [case.described(f"c{number}_") for number, case in enumerate(cases)]
    feeds = {name: value for part in parts for name, value in part.feeds.items()}
    content = tflite_bytes(
        [tensor for part in parts for tensor in part.tensors],
        [operator for part in parts for operator in part.operators],
        list(feeds),
        [name for part in parts for name in part.results],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        states = {name: value for part in parts for name, value in part.states.items()}
        yield open_model(path), {**feeds, **states}


def _apart(cases: Sequence[Case], found: Mapping[str, np.ndarray]) -> list[Results]:
    """Return the results of each case."""
    parts = [case.described(f"c{number}_") for number, case in enumerate(cases)]
    names = [[*part.results, *(f"{name}_next" for name in part.states)] for part in parts]
    return [[found[name] for name in each] for each in names]


def in_library(cases: Sequence[Case]) -> list[Results]:
    with model_of(cases) as (source, feeds):
        return _apart(cases, run_as_deployed(source, feeds))


def in_c(cases: Sequence[Case]) -> list[Results]:
    """Compile portable C for this host, with undefined behaviour caught."""
    from graphs.c_library import run_tree

    from edgekit.aot.compile import compile_tree
    from edgekit.aot.generators import portable_generators
    from edgekit.aot.job import TreeJob
    from edgekit.aot.tree import Origin
    from edgekit.aot.write import write_tree
    from support.c_builds import CORTEX_M4

    with model_of(cases) as (source, feeds):
        origin = Origin("net", "model.tflite", "0", "here", CORTEX_M4.name)
        model = import_model(source)
        compiled = compile_tree(model, TreeJob("net", origin, CORTEX_M4), portable_generators())
        write_tree(compiled.plan, source.path.parent)
        return _apart(cases, run_tree(compiled.plan, source.path.parent, feeds))


WAYS: Mapping[str, Callable[[Sequence[Case]], list[Results]]] = {"library": in_library, "C": in_c}


@cache
def wanted(case: Case) -> Results:
    """Return what LiteRT's reference kernels compute."""
    with model_of([case]) as (source, feeds):
        found = _apart([case], oracle_for(source).run(feeds))[0]
    return [_endless(array) for array in found] if case.operator in _STOPPED else found


def _endless(array: np.ndarray) -> np.ndarray:
    """Return infinity for the largest number of a type."""
    if array.dtype.kind != "f":
        return array
    stopped = np.abs(array) == np.finfo(array.dtype).max
    return np.where(stopped, np.copysign(np.inf, array), array).astype(array.dtype)


def refusal_by_litert(case: Case) -> str:
    """Return why LiteRT does not compute a case; empty if it does."""
    try:
        wanted(case)
    except (ModelError, ValueError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return ""


@cache
def refusal(case: Case) -> str:
    """Return why a model of this case cannot be imported; empty if it can."""
    with model_of([case]) as (source, _):
        try:
            import_model(source)
        except (ModelError, UnsupportedModelError) as error:
            return " ".join((error.message, *error.details))
    return ""


def problem_of(case: Case, found: Results) -> str:
    """Return what is wrong with the results of a case; empty if they are right."""
    right = wanted(case)
    problems = (_problem(case, ours, theirs) for ours, theirs in zip(found, right, strict=True))
    return "; ".join(problem for problem in problems if problem)


def _problem(case: Case, found: np.ndarray, right: np.ndarray) -> str:
    comparable = found.dtype == right.dtype and found.shape == right.shape
    if case.dtype.startswith("q") and comparable and right.dtype.name in QUANTISED:
        off = np.abs(found.astype(int) - right.astype(int))
        if case.dtype == "qint16" and off.max(initial=0) <= IN_16_BITS.allowed:
            return ""
        few = max(1, SHARE_OFF_BY_A_STEP * off.size)
        is_exact = case.exactness == 1 and case.dtype == "qint8"
        if not is_exact and off.max(initial=0) <= 1 and (off > 0).sum() <= few:
            return ""
    return difference(found, right, case.exactness)


def verdicts(cases: Sequence[Case], way: str) -> dict[Case, Verdict]:
    """Judge many cases in as few models as possible, without those that no importer takes."""
    found = {case: Verdict("refused", why) for case in cases if (why := refusal(case))}
    taken = [case for case in cases if case not in found]
    for start in range(0, len(taken), CASES_A_MODEL):
        found.update(_judged(taken[start : start + CASES_A_MODEL], WAYS[way]))
    return {case: found[case] for case in cases}


def _judged(
    cases: Sequence[Case], run: Callable[[Sequence[Case]], list[Results]]
) -> dict[Case, Verdict]:
    """Return a verdict for each case. They run in one model; where that fails, in halves of it."""
    try:
        results = run(cases)
    except (ModelError, UnsupportedModelError) as error:
        outcome = Verdict("refused", " ".join((error.message, *error.details)))
    except EdgekitError as error:
        outcome = Verdict("crash", " ".join((error.message, *error.details)))
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the finding
        outcome = Verdict("crash", f"{type(error).__name__}: {error}"[:300])
    else:
        problems = [problem_of(case, own) for case, own in zip(cases, results, strict=True)]
        return {
            case: Verdict("wrong", problem) if problem else RIGHT
            for case, problem in zip(cases, problems, strict=True)
        }
    if len(cases) == 1:
        return {cases[0]: outcome}
    half = (len(cases) + 1) // 2
    return {**_judged(cases[:half], run), **_judged(cases[half:], run)}
