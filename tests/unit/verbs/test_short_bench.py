"""A deployment measures briefly, however slow the model is."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.devices.base import BenchPlan
from edgekit.verbs.deploy import SHORT_BENCH, shorten
from edgekit.verbs.verify import SampleReport, VerifyReport


def verified(*seconds: float) -> VerifyReport:
    return VerifyReport(
        bundle=Path("net"),
        board="rpi4",
        device="pi",
        measured_by="hardware",
        oracle="onnxruntime",
        reference=True,
        passed=True,
        outputs=(),
        samples=tuple(SampleReport("random", True, each, ()) for each in seconds),
    )


def test_a_quick_model_is_measured_as_planned() -> None:
    assert shorten(SHORT_BENCH, verified(0.01)) == SHORT_BENCH


@pytest.mark.parametrize("seconds", [2.0, 11.0, 300.0])
def test_a_slow_model_is_run_a_few_times_only(seconds: float) -> None:
    plan = shorten(SHORT_BENCH, verified(seconds))

    assert plan.warmup == 1
    assert 3 <= plan.runs < SHORT_BENCH.runs
    assert plan.seconds == 0.0


def test_what_further_vectors_took_is_not_spent_again() -> None:
    one, four = shorten(SHORT_BENCH, verified(1.3)), shorten(SHORT_BENCH, verified(*[1.3] * 4))

    assert one.warmup + one.runs - 3 == four.warmup + four.runs


def test_what_was_planned_by_hand_stays() -> None:
    plan = BenchPlan(warmup=5, runs=50, seconds=2.0)

    assert shorten(plan, verified(30.0)) == plan


def test_without_a_verification_nothing_is_known() -> None:
    assert shorten(SHORT_BENCH, None) == SHORT_BENCH
