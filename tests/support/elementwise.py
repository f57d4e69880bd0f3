"""Values for elementwise operators of every type, and many operators run in one deployed model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import ml_dtypes
import numpy as np

from edgekit.base.errors import EdgekitError, ModelError, UnsupportedModelError
from edgekit.building.build import build
from edgekit.devices.local.device import LocalDevice
from support.building import request_for
from support.on_device import run_on

LENGTH = 37
"""Longer than any vector, and no multiple of one."""
TOLERANCES = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-12}
"""Relative; two units in the last place of the half-precision types."""

Case = TypeVar("Case")


@dataclass(frozen=True)
class Verdict:
    """What became of one case: right, refused, wrong or failed."""

    word: str
    reason: str = ""


RIGHT = Verdict("right")


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def values(dtype: str, place: int = 0) -> np.ndarray:
    """Values of a type with its edges first; `place` tells the operands of one operator apart."""
    kind, random = dtype_of(dtype), np.random.default_rng(place)
    if dtype == "bool":
        return random.integers(0, 2, LENGTH).astype(bool)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        edges = [0, 1, limits.max, limits.min, limits.max - 1, 2, 7]
        rest = random.integers(max(limits.min, -50), 50, LENGTH - len(edges))
        found = np.array([*edges, *rest.tolist()], kind)
    else:
        edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, -2.5, 1.0, -1.0]
        rest = random.uniform(-4, 4, LENGTH - len(edges))
        found = np.concatenate([edges, rest]).astype(kind)
    return np.roll(found, 3 * place)


def in_range(array: np.ndarray, low: float, high: float) -> np.ndarray:
    """The same values, those outside of two limits and NaN replaced by ones inside."""
    wide = array.astype("float64") if array.dtype.kind not in "iu" else array.astype(object)
    inside = [
        value if low <= value <= high else low + index % int(min(high - low, 100) + 1)
        for index, value in enumerate(wide.tolist())
    ]
    return np.array(inside).astype(array.dtype)


def difference(found: np.ndarray, wanted: np.ndarray, factor: float = 1) -> str:
    """The first element that differs by more than its type's tolerance; empty where none does."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    tolerance = TOLERANCES.get(wanted.dtype.name, 0) * factor
    if not tolerance:
        wrong = found != wanted
    else:
        ours, theirs = found.astype("float64"), wanted.astype("float64")
        with np.errstate(invalid="ignore"):
            wrong = ~np.isclose(ours, theirs, tolerance, tolerance / 10, equal_nan=True)
    if not wrong.any():
        return ""
    first = int(np.argmax(wrong.reshape(-1)))
    pair = found.reshape(-1)[first], wanted.reshape(-1)[first]
    return f"{int(wrong.sum())} differ, element {first} is {pair[0]} for {pair[1]}"


def deployed(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a build and the process of a deployment make of a model."""
    with tempfile.TemporaryDirectory() as folder:
        built = build(request_for(model), Path(folder) / "bundle", use_cache=False, isolated=False)
        return dict(run_on(LocalDevice(), built.bundle, inputs).outputs)


def judged(
    cases: Sequence[Case],
    run: Callable[[Sequence[Case]], list[np.ndarray]],
    wanted: Callable[[Case], np.ndarray],
    factor: Callable[[Case], float] = lambda case: 1,
) -> dict[Case, Verdict]:
    """A verdict for each case. They run in one model; where that fails, in halves of it."""
    try:
        results = run(cases)
    except (ModelError, UnsupportedModelError) as error:
        if len(cases) == 1:
            return {cases[0]: Verdict("refused", " ".join((error.message, *error.details)))}
    except EdgekitError as error:
        if len(cases) == 1:
            return {cases[0]: Verdict("failed", " ".join((error.message, *error.details)))}
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the finding
        if len(cases) == 1:
            return {cases[0]: Verdict("failed", f"{type(error).__name__}: {error}")}
    else:
        verdicts = {}
        for case, found in zip(cases, results, strict=True):
            problem = difference(found, wanted(case), factor(case))
            verdicts[case] = Verdict("wrong", problem) if problem else RIGHT
        return verdicts
    half = (len(cases) + 1) // 2
    parts = (judged(part, run, wanted, factor) for part in (cases[:half], cases[half:]))
    return {case: verdict for part in parts for case, verdict in part.items()}
