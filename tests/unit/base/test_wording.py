from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.wording import amount, did_you_mean, duration, milliseconds, printable, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.00042, "0.42 ms"),
        (0.0123, "12 ms"),
        (0.9994, "999 ms"),
        (0.9999, "1.0 s"),
        (3.21, "3.2 s"),
        (59.96, "1 min 0 s"),
        (125, "2 min 5 s"),
        (3725, "1 h 2 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00001968, "0.01968 ms"),
        (0.01425, "14.25 ms"),
        (9.9994, "9999 ms"),
        (9.9998, "10000 ms"),
        (11.51, "11510 ms"),
    ],
)
def test_latencies_stay_in_milliseconds_without_powers_of_ten(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1048575, "1.0 MiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 40, "5.0 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999"), (1500, "1.50 k"), (300_774_272, "300.77 M"), (10**9, "1.00 G")],
)
def test_amounts(count: int, text: str) -> None:
    assert amount(count) == text


def test_a_near_word_is_suggested_and_a_far_one_is_not() -> None:
    assert did_you_mean("rpi44", ["rpi4", "local"], "none") == "did you mean rpi4?"
    assert did_you_mean("zzz", ["rpi4", "local"], "see the list") == "see the list"


@given(st.text())
def test_printable_text_holds_no_control_characters(text: str) -> None:
    shown = printable(text)

    assert all(letter.isprintable() or letter in "\n\t" for letter in shown)
    if text.isprintable():
        assert shown == text
