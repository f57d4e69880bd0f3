"""When two runs may be compared, and when a difference is more than noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import a_run

from edgekit.base.errors import NotComparableError, RegressionError
from edgekit.store.comparing import best_of, compare_runs, median_interval
from edgekit.store.results import raise_if_regressed
from edgekit.store.runs import BenchRun


def noisy(random: np.random.Generator, number: int, median: float, count: int = 60) -> BenchRun:
    samples = random.lognormal(np.log(median * 1e9), 0.1, count).astype("int64")
    return a_run(number, float(np.median(samples)) / 1e9, samples=tuple(map(int, samples)))


def test_a_clear_difference_has_a_direction() -> None:
    slower = compare_runs(a_run(1, 0.010), a_run(2, 0.015))
    assert slower.verdict == "slower"
    assert slower.ratio == pytest.approx(1.5)
    assert slower.low < 1.5 < slower.high
    assert compare_runs(a_run(1, 0.015), a_run(2, 0.010)).verdict == "faster"
    assert compare_runs(a_run(1), a_run(2)).verdict == "same"


def test_noise_alone_is_rarely_taken_for_a_difference_and_a_real_one_is_found() -> None:
    random = np.random.default_rng(1)
    pairs = [(noisy(random, 1, 0.01), noisy(random, 2, 0.01)) for _ in range(300)]
    wrong = sum(compare_runs(*pair).verdict != "same" for pair in pairs)
    assert wrong < 15, "of 300: the two intervals together are stricter than 95 %"
    shifted = [(noisy(random, 1, 0.01), noisy(random, 2, 0.012)) for _ in range(100)]
    assert sum(compare_runs(*pair).verdict == "slower" for pair in shifted) > 95


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=200))
def test_the_interval_holds_the_median(samples: list[int]) -> None:
    ordered = sorted(samples)
    median = float(np.median(ordered)) / 1e9
    run = a_run(samples=tuple(samples), median=median)
    run = replace(run, minimum=ordered[0] / 1e9, p99=ordered[-1] / 1e9)
    low, high = median_interval(run)
    assert low <= median <= high


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"governor": "powersave"}, "CPU governors: performance and powersave"),
        ({"threads": 1}, "numbers of threads: 4 and 1"),
        ({"throttled": True}, "the second run was throttled"),
        ({"busy": True}, "second run was busy"),
        ({"governor": None}, "performance and unknown"),
    ],
)
def test_other_conditions_are_no_comparison(change: dict[str, object], said: str) -> None:
    before = a_run(1)
    after = a_run(2, 0.02, conditions=replace(before.conditions, **change))  # type: ignore[arg-type]
    comparison = compare_runs(before, after)
    assert comparison.verdict == "not comparable"
    assert said in " ".join(comparison.obstacles)
    with pytest.raises(NotComparableError, match="can't be compared") as caught:
        raise_if_regressed(comparison, 0.5)
    assert caught.value.exit_code not in (0, RegressionError.exit_code)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"unit": "instructions"}, {"unit": "instructions"}, None),
        ({}, {"unit": "instructions"}, "seconds and the other in instructions"),
        ({}, {"measured_by": "emulator"}, "hardware measured one run and an emulator the other"),
        (
            {"measured_by": "simulator"},
            {"measured_by": "emulator"},
            "a simulator measured one run and an emulator",
        ),
        ({"measured_by": None}, {}, "something unknown measured one run and hardware the other"),
        ({"measured_by": None}, {"measured_by": None}, None),
        ({"measured_by": "emulator"}, {"measured_by": "emulator"}, None),
    ],
)
def test_two_units_or_two_measurers_have_no_ratio(
    before: dict[str, object], after: dict[str, object], said: str | None
) -> None:
    one, other = a_run(1, **before), a_run(2, **after)
    if said is None:
        comparison = compare_runs(one, other)
        is_own = one.measured_by == "hardware"
        assert any("measured by" in text for text in comparison.remarks) != is_own
        return
    with pytest.raises(NotComparableError, match=said) as caught:
        compare_runs(one, other)
    assert caught.value.hint is not None


def test_another_offload_is_what_one_compares_and_is_said() -> None:
    before = a_run(1)
    after = a_run(2, build=replace(before.build, offload=()))
    comparison = compare_runs(before, after)
    assert comparison.verdict == "same"
    assert any("offloads: ncnn and none" in remark for remark in comparison.remarks)
    other = a_run(3, build=replace(before.build, model="another"))
    assert compare_runs(before, other).verdict == "not comparable"


def test_a_policy_allows_what_it_says_and_no_more() -> None:
    comparison = compare_runs(a_run(1, 0.010), a_run(2, 0.011))
    raise_if_regressed(comparison, 0.15)
    with pytest.raises(RegressionError, match=r"10\.0 % slower, and 5\.0 % was allowed"):
        raise_if_regressed(comparison, 0.05)
    raise_if_regressed(compare_runs(a_run(1, 0.010), a_run(2, 0.005)), 0.0)


def test_the_best_is_the_one_of_the_lowest_median() -> None:
    assert best_of([a_run(1, 0.3), a_run(2, 0.1), a_run(3, 0.2)]).id == a_run(2).id


def test_other_sizes_of_the_inputs_are_no_comparison() -> None:
    before, after = a_run(1, sizes="ids=1x64"), a_run(2)
    assert "different sizes of the inputs: ids=1x64 and the largest" in " ".join(
        compare_runs(before, after).obstacles
    )
    assert compare_runs(before, a_run(3, sizes="ids=1x64")).verdict == "same"
