"""Every elementwise operator with every type, built and run as a deployment runs it: right, or
refused with a reason. `make operator-tests` tries all of them, `make test` some of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import pytest
from support import elementwise_onnx, elementwise_tflite
from support.elementwise import Verdict
from support.needs import import_needed

import_needed("torch")
from support import elementwise_torch  # noqa: E402

REFUSED = (
    *("the compiler has it for float tensors only", "16 bits from coarse tables"),
    *("which C99 has no type for", "it quantises what is neither float nor quantised"),
)
"""The reasons why a TFLite operator that LiteRT computes is not built."""


def some(cases: Sequence[Any], part: int) -> list[Any]:
    """One case of each `part`, the same in each run."""
    return [case for case in cases if crc32(str(case).encode()) % part == 0]


def check(verdicts: Mapping[Any, Verdict], refused: set[str]) -> Counter[str]:
    bad = {
        str(case): verdict
        for case, verdict in verdicts.items()
        if verdict.word not in ("right", "refused")
        or (verdict.word == "refused") != (str(case).partition("-")[0] in refused)
    }
    assert not bad, "\n".join(f"{case}: {v.word}, {v.reason[:300]}" for case, v in bad.items())
    return Counter(verdict.word for verdict in verdicts.values())


def test_some_operators_of_onnx() -> None:
    chosen = some(list(elementwise_onnx.cases()), 12)
    assert check(elementwise_onnx.verdicts(chosen), set())["right"] > 70


def test_some_operators_of_pytorch() -> None:
    chosen = some(list(elementwise_torch.cases()), 60)
    assert check(elementwise_torch.verdicts(chosen), set())["right"] > 12


@pytest.mark.parametrize("way", elementwise_tflite.WAYS)
def test_some_operators_of_tflite(way: str) -> None:
    chosen = elementwise_tflite.possible(some(list(elementwise_tflite.candidates()), 24))
    assert check_tflite(chosen, way)["right"] > 12


def check_tflite(chosen: Sequence[elementwise_tflite.Case], way: str) -> Counter[str]:
    verdicts = elementwise_tflite.WAYS[way](chosen)
    bad = {
        str(case): verdict
        for case, verdict in verdicts.items()
        if verdict.word not in ("right", "refused")
        or (verdict.word == "refused" and not any(why in verdict.reason for why in REFUSED))
    }
    assert not bad, "\n".join(f"{case}: {v.word}, {v.reason[:300]}" for case, v in bad.items())
    return Counter(verdict.word for verdict in verdicts.values())


@pytest.mark.operators
@pytest.mark.parametrize(("way", "right"), [("library", 640), ("C", 560)])
def test_all_operators_of_tflite(way: str, right: int) -> None:
    chosen = elementwise_tflite.possible(elementwise_tflite.candidates())
    assert check_tflite(chosen, way)["right"] > right


@pytest.mark.operators
def test_all_operators_of_onnx() -> None:
    found = check(elementwise_onnx.verdicts(list(elementwise_onnx.cases())), set())
    assert found["right"] > 1200


@pytest.mark.operators
def test_all_operators_of_pytorch() -> None:
    cases = list(elementwise_torch.cases())
    assert check(elementwise_torch.verdicts(cases), set())["right"] > 1300
