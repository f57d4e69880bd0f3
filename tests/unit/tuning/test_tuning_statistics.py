"""What a few timings of one kernel are taken to say."""

from __future__ import annotations

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from edgekit.tuning.statistics import drifted, is_better, typical, without_outliers

TIMES = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30)


def test_a_moment_in_which_the_device_did_something_else_is_left_out() -> None:
    assert without_outliers([10.0, 10.1, 9.9, 10.0, 55.0]) == [10.0, 10.1, 9.9, 10.0]


def test_timings_that_hardly_differ_all_count() -> None:
    values = [10.0, 10.0, 10.0, 10.02, 9.98]

    assert without_outliers(values) == values


@given(TIMES)
def test_at_least_half_of_the_timings_stay(values: list[float]) -> None:
    assert 2 * len(without_outliers(values)) >= len(values)


@given(TIMES)
def test_what_is_typical_lies_among_the_timings(values: list[float]) -> None:
    assert min(values) <= typical(values) <= max(values)


@given(st.lists(st.floats(9.9, 10.1), min_size=5, max_size=9), st.floats(100, 1e6))
def test_one_timing_that_is_far_off_changes_next_to_nothing(
    values: list[float], far: float
) -> None:
    assert abs(typical([*values, far]) - median(values)) < 0.2


def test_a_kernel_is_better_only_beyond_noise() -> None:
    assert is_better(9.6, 10.0)
    assert not is_better(9.8, 10.0)


def test_a_device_drifts_whichever_way_its_clock_goes() -> None:
    assert drifted(10.0, 12.0)
    assert drifted(12.0, 10.0)
    assert not drifted(10.0, 11.0)
