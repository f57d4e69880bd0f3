"""What a board says of its load and temperature is not believed whatever it is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.farm.vitals import Vitals, parse_vitals


@pytest.mark.parametrize(
    ("output", "vitals"),
    [
        ("0.52 0.40 0.30 1/200 4711\n41000\n56500\n", Vitals(0.52, 56.5)),
        ("0.52 0.40\n-5000\n", Vitals(0.52, -5.0)),
        ("nan\n41000\n", Vitals(None, 41.0)),
        ("-1\n999000\n--5\nN/A\n", Vitals(None, None)),
        ("inf\n" + "9" * 5000, Vitals(None, None)),
        ("", Vitals(None, None)),
    ],
)
def test_what_makes_no_sense_is_not_known(output: str, vitals: Vitals) -> None:
    assert parse_vitals(output) == vitals


@given(st.text(alphabet="0123456789-+.einf_ \n\0x", max_size=40))
def test_whatever_a_board_says_is_a_number_or_nothing(output: str) -> None:
    vitals = parse_vitals(output)
    assert all(value is None or math.isfinite(value) for value in vars(vitals).values())
