"""Every elementwise operator with every type, built and run as a deployment runs it: right, or
refused with a reason. `make operator-tests` tries all of them, `make test` some of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import pytest
from support import elementwise_onnx
from support.elementwise import Verdict
from support.needs import import_needed

import_needed("torch")
from support import elementwise_torch  # noqa: E402

ONCE_WRONG = frozenset(
    (
        *("addcdiv-float16-tensor", "clamp_tensor-float32-number", "div_floor-int32-number"),
        *("div_trunc-int64-number", "floordiv-bool-number", "heaviside-float32-tensor"),
        *("logsigmoid-float16-alone", "lshift-int32-tensor", "neg-uint8-alone"),
        "xlogy-bool-float32",
    )
)
"""Cases of PyTorch that gave other numbers or none, which the next test has beside its own."""


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
    every = list(elementwise_torch.cases())
    again = [case for case in every if str(case) in ONCE_WRONG]
    assert len(again) == len(ONCE_WRONG)
    chosen = [*again, *(case for case in some(every, 60) if case not in again)]
    assert check(elementwise_torch.verdicts(chosen), set())["right"] > 12


@pytest.mark.operators
def test_all_operators_of_onnx() -> None:
    found = check(elementwise_onnx.verdicts(list(elementwise_onnx.cases())), set())
    assert found["right"] > 1200


@pytest.mark.operators
def test_all_operators_of_pytorch() -> None:
    cases = list(elementwise_torch.cases())
    assert check(elementwise_torch.verdicts(cases), set())["right"] > 1300
