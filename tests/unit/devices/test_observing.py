"""Readings that come over a line, and what benchmarks make of what sensors said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.metrics import HostState
from edgekit.devices.base import BenchSamples, MemoryUse
from edgekit.devices.linux.observing import Blind, observe_this_machine, parse_readings
from edgekit.devices.sensors.readings import Observed, PowerUse, Warmth
from edgekit.verbs.bench import summarise_samples

HOST = HostState("performance", 1500.0, 0.0, 4)


def samples(observed: Observed | None) -> BenchSamples:
    nanoseconds = (10_000_000,) * 20
    return BenchSamples(
        nanoseconds, 1, 1, MemoryUse(None, None), HOST, HOST, None, observed=observed
    )


def test_lines_become_readings_and_nonsense_is_left_out() -> None:
    lines = ["1000000000\t5\t7", "what", "2000000000\t6", "-1\t1\t2", "3000000000\tx\t8"]
    readings = parse_readings(lines, ("/a", "/b"))
    assert readings.times == (1.0, 3.0)
    assert readings.values == {"/a": (5, None), "/b": (7, 8)}


@given(st.lists(st.text(max_size=40), max_size=20))
def test_whatever_comes_over_the_line_is_taken_or_left(lines: list[str]) -> None:
    readings = parse_readings(lines, ("/a",))
    assert len(readings.times) == len(readings.values["/a"])


def test_energy_is_of_one_inference_and_idle_is_named() -> None:
    power = PowerUse("VDD_IN", 6.0, 4.0, 3.0, 0.5, ())
    report = summarise_samples(
        Path("b"),
        "jetson-orin",
        "lab",
        samples(Observed(power, Warmth(40, 50, 55.5), True)),
        "hardware",
    )
    assert report.power is not None
    assert report.power.joules == pytest.approx(0.06)
    assert report.power.joules_above_idle == pytest.approx(0.02)
    assert report.power.source == "VDD_IN"
    assert report.temperature == 55.5
    assert report.throttled is True


def test_what_a_board_cant_tell_is_null() -> None:
    for observed in (None, Observed(None, None, None)):
        report = summarise_samples(Path("b"), "rpi4", "kitchen", samples(observed), "hardware")
        assert (report.power, report.temperature, report.throttled) == (None, None, None)


def test_nobody_listens_where_nobody_asked() -> None:
    with observe_this_machine(False) as observer:
        assert isinstance(observer, Blind)
        observer.begin()
        assert observer.end() is None
