"""Each quantity has one way to be printed, and each of them can be read back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.wording import (
    amount,
    clock_rate,
    counted,
    did_you_mean,
    duration,
    energy,
    exact_size,
    joined,
    measured,
    microseconds,
    multiple,
    natural,
    number,
    percent,
    printable,
    size,
    width,
)

SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


def read_back(text: str, units: dict[str, float]) -> float:
    """Return the value of `2 min 5 s`: an independent reading of what is printed."""
    pairs = re.findall(r"([\d,.]+) (\S+)", text)
    assert " ".join(f"{value} {unit}" for value, unit in pairs) == text
    return sum(float(value.replace(",", "")) * units[unit] for value, unit in pairs)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (3.754e-8, "37.5 ns"),
        (9.996e-7, "1.00 µs"),
        (0.00042, "420 µs"),
        (0.0123, "12.3 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (3.21, "3.21 s"),
        (30, "30 s"),
        (59.96, "1 min"),
        (125, "2 min 5 s"),
        (3599.6, "1 h"),
        (3725, "1 h 2 min"),
        (86_399, "1 d"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats(1e-9, 1e9))
def test_a_duration_is_read_back_to_three_digits(seconds: float) -> None:
    text = duration(seconds)

    assert "e" not in text
    # Three digits below a minute; then whole seconds, minutes, hours.
    assert read_back(text, SECONDS) == pytest.approx(seconds, rel=0.0051 if seconds < 60 else 0.02)


@given(st.floats(1e-9, 50), st.floats(1e-9, 50))
def test_the_longer_of_two_times_never_reads_as_the_shorter(one: float, other: float) -> None:
    short, long = sorted((one, other))
    assert read_back(duration(short), SECONDS) <= read_back(duration(long), SECONDS) * (1 + 1e-9)


def test_a_measurement_has_its_unit_and_an_unknown_time_no_text() -> None:
    assert measured(0.0143, "seconds") == "14.3 ms"
    assert measured(1_234_567, "instructions") == "1,234,567 instructions"
    assert microseconds(80) == "80 µs"
    assert microseconds(None) is None


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (327_680, "320 KiB"),
        (1_048_575, "1.00 MiB"),
        (1536, "1.50 KiB"),
        (5 << 40, "5 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@given(st.integers(0, 1 << 55))
def test_a_size_is_read_back_to_three_digits(count: int) -> None:
    assert read_back(size(count), BYTES) == pytest.approx(count, rel=0.0051)


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999"), (1500, "1.50 k"), (300_774_272, "301 M"), (10**9, "1 G"), (999_950, "1.00 M")],
)
def test_amounts(count: int, text: str) -> None:
    assert amount(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12.34, "12.3"),
        (9.996, "10.0"),
        (1234.5, "1,234"),
        (7.0, "7"),
        (0.00123, "0.00123"),
        (1.2e-7, "1.2e-07"),
        (0, "0"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("count", "one", "text"),
    [
        (1, "region", "1 region"),
        (0, "region", "0 regions"),
        (1600, "line", "1,600 lines"),
        (3, "library", "3 libraries"),
        (2, "key", "2 keys"),
        (2, "process", "2 processes"),
        (2, "twin image", "2 twin images"),
    ],
)
def test_one_thing_is_singular_and_several_are_plural(count: int, one: str, text: str) -> None:
    assert counted(count, one) == text


def test_shares_ratios_and_lists() -> None:
    assert [percent(p) for p in (0, 0.0001, 0.05, 0.9999, 1, 1.5)] == [
        *("0 %", "under 0.1 %", "5.0 %", "99.9 %", "100 %", "150.0 %")
    ]
    assert multiple(2.6123) == "2.61x"
    assert multiple(0.9971, 0.985, 1.01) == "0.997x (0.985x to 1.010x)"
    assert (energy(0.0123), energy(1.2)) == ("12.3 mJ", "1.20 J")
    assert (clock_rate(168e6), clock_rate(32_768)) == ("168 MHz", "32.8 kHz")
    assert exact_size(65_540) == "65,540 bytes"
    assert [joined(w) for w in ([], ["a"], ["a", "b", "c"])] == ["", "a", "a, b and c"]


def test_wide_letters_take_two_columns_and_accents_none() -> None:
    assert [width(text) for text in ("abc", "模型", "o\u0308", "Größe")] == [3, 4, 1, 5]


def test_a_near_word_is_suggested_and_a_far_one_is_not() -> None:
    assert did_you_mean("rpi44", ["rpi4", "local"], "none") == "did you mean rpi4?"
    assert did_you_mean("zzz", ["rpi4", "local"], "see the list") == "see the list"


@given(st.text())
def test_printable_text_holds_no_control_characters(text: str) -> None:
    shown = printable(text)

    assert all(letter.isprintable() or letter in "\n\t" for letter in shown)
    if text.isprintable():
        assert shown == text


def test_names_are_sorted_as_people_count() -> None:
    names = ["img10.png", "img2.png", "img1.png", "10.png", "9.png", "b", "a"]

    assert sorted(names, key=natural) == [
        "9.png", "10.png", "a", "b", "img1.png", "img2.png", "img10.png"
    ]  # fmt: skip


@given(st.lists(st.text()))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    assert sorted(sorted(names, key=natural)) == sorted(names)
