"""What decides about a region without a measurement: the rates, or the backend's own costs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from edgekit.backends.base import Layer, Region, Step, Tensor
from edgekit.backends.cost import estimate, reckon
from edgekit.base.errors import BuildError
from edgekit.profiles.offload import ONLY_MEASURED, Rates

X, Y = Tensor("x", (1, 1000), "float32"), Tensor("y", (1, 1000), "float32")
STEP = Step("dense", Layer("dense", ("x",)), (X,), (Y,), ("matmul",), ("/head",), macs=1_000_000)
REGION = Region("edgekit_npu_0", "npu", (STEP,), (X,), (Y,))
RATES = Rates(call_us=5, tvm_gmac_s=2)


def npu(answer: Any) -> Any:
    def microseconds(region: Region, options: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(name="npu", microseconds=microseconds)


def test_a_backend_without_costs_is_judged_by_the_rates() -> None:
    assert estimate(REGION, RATES, SimpleNamespace(name="cpu"), {}) == reckon(REGION, RATES)  # type: ignore[arg-type]


@pytest.mark.parametrize(("answer", "pays"), [(100.0, True), (494.0, True), (495.0, False)])
def test_a_backends_own_time_and_the_call_must_be_shorter_than_tvms(
    answer: float, pays: bool
) -> None:
    verdict = estimate(REGION, RATES, npu(answer), {})

    assert (verdict.pays, verdict.saved_us) == (pays, 495 - answer)
    assert verdict.reason == (
        "not measured: 1 M MACs may take TVM 500 µs; npu estimates "
        f"{answer:.0f} µs, and its call 5 µs"
    )


def test_costs_of_its_own_are_no_measurement() -> None:
    assert not estimate(REGION, ONLY_MEASURED, npu(0.0), {}).pays


@pytest.mark.parametrize("answer", [math.nan, math.inf, -1.0, ZeroDivisionError("mhz")])
def test_an_estimate_that_is_no_time_names_the_backend(answer: Any) -> None:
    with pytest.raises(BuildError, match="the backend npu could not estimate the time") as raised:
        estimate(REGION, RATES, npu(answer), {})
    assert "never" in (raised.value.hint or "")
