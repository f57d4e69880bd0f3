"""TFLite operators compute what LiteRT computes, in a library and as C; `make tflite-tests` tries
every case in every type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from zlib import crc32

import pytest
from support import elementwise_tflite, tflite_typed
from support.tflite_ways import Case, refusal_by_litert, verdicts

from edgekit.models.tflite.operators import CHOSEN, COMPUTED, DESCRIBED, MOVED


def check(cases: Sequence[Case], way: str) -> Counter[str]:
    taken = [case for case in cases if not refusal_by_litert(case)]
    found = verdicts(taken, way)
    bad = {str(c): v for c, v in found.items() if v.word not in ("right", "refused")}
    assert not bad, "\n".join(f"{case}: {v.word}, {v.reason[:300]}" for case, v in bad.items())
    return Counter(verdict.word for verdict in found.values())


def some(cases: Sequence[Case], part: int) -> list[Case]:
    """Return one case of each `part`, the same in each run."""
    return [case for case in cases if crc32(str(case).encode()) % part == 0]


def test_every_operator_in_float32() -> None:
    cases = [case for case in tflite_typed.cases() if case.dtype == "float32"]
    taken = [case for case in cases if case.operator in COMPUTED | MOVED | CHOSEN | DESCRIBED]
    assert check(taken, "library")["right"] >= 100


@pytest.mark.parametrize(("way", "right"), [("library", 40), ("C", 40)])
def test_some_operators_in_other_types(way: str, right: int) -> None:
    layers = [case for case in tflite_typed.cases() if case.dtype != "float32"]
    chosen = [*some(layers, 16), *some(list(elementwise_tflite.cases()), 24)]
    assert check(chosen, way)["right"] >= right


def test_every_operator_on_the_list_is_tested() -> None:
    tested = {case.operator for case in tflite_typed.cases()}
    tested |= {case.operator for case in elementwise_tflite.cases()}
    sparse = {"DENSIFY"}  # A real model has it: test_real_models
    missing = (COMPUTED | MOVED | CHOSEN | DESCRIBED) - tested - sparse
    assert not missing, sorted(missing)
