"""A table fits the terminal, and loses nothing for that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.cli.table import Table

BOARDS = Table(
    ("name", "cpu", "RAM", "board"),
    [
        ("beagleplay", "cortex-a53", "2 GiB", "BeaglePlay (TI AM625)"),
        ("jetson-orin", "cortex-a78ae", "8 GiB", "NVIDIA Jetson Orin Nano 8 GB"),
    ],
    right=("RAM",),
)

CELLS = st.text("abc xyz-", max_size=30).map(lambda text: " ".join(text.split()))
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), max_size=5)


def test_without_a_limit_a_row_is_one_line() -> None:
    assert BOARDS.lines(None) == (
        ["name         cpu             RAM  board"],
        [
            "beagleplay   cortex-a53    2 GiB  BeaglePlay (TI AM625)",
            "jetson-orin  cortex-a78ae  8 GiB  NVIDIA Jetson Orin Nano 8 GB",
        ],
    )


def test_the_last_column_gives_way_first() -> None:
    assert BOARDS.lines(55) == (
        ["name         cpu             RAM  board"],
        [
            "beagleplay   cortex-a53    2 GiB  BeaglePlay (TI AM625)",
            "jetson-orin  cortex-a78ae  8 GiB  NVIDIA Jetson Orin",
            "                                  Nano 8 GB",
        ],
    )


def test_then_the_widest_column_whose_words_stay_whole() -> None:
    table = Table(("reason", "what"), [("it is too long for one line", "y" * 12)])
    assert table.lines(30) == (
        ["reason            what"],
        ["it is too long    yyyyyyyyyyyy", "for one line"],
    )


def test_a_path_may_be_broken_so_that_the_rest_stays_a_table() -> None:
    table = Table(("tool", "found"), [("qemu-img", "/usr/local/bin/a-very-long-name-indeed")])
    assert table.lines(32) == (
        ["tool      found"],
        ["qemu-img  /usr/local/bin/a-very-", "          long-name-indeed"],
    )


def test_where_columns_do_not_fit_each_row_is_shown_as_fields() -> None:
    assert BOARDS.lines(30) == (
        [],
        [
            "name   beagleplay",
            "cpu    cortex-a53",
            "RAM    2 GiB",
            "board  BeaglePlay (TI AM625)",
            "",
            "name   jetson-orin",
            "cpu    cortex-a78ae",
            "RAM    8 GiB",
            "board  NVIDIA Jetson Orin Nano",
            "       8 GB",
        ],
    )


def test_a_table_without_rows_is_its_header_or_nothing() -> None:
    empty = Table(("name", "value"), [])
    assert empty.lines(80) == (["name  value"], [])
    assert empty.lines(5) == ([], [])


@pytest.mark.parametrize("right", [(), ("b",)])
@given(ROWS, st.integers(20, 120))
def test_no_width_is_exceeded_and_no_letter_is_lost(
    right: tuple[str, ...], rows: list[tuple[str, str, str, str]], room: int
) -> None:
    header, lines = Table(("a", "b", "c", "d"), rows, right).lines(room)

    assert all(len(line) <= room for line in (*header, *lines))
    shown = "".join(sorted("".join("".join(lines).split())))
    wanted = "".join(letter for row in rows for cell in row for letter in cell)
    labels = "" if header else "abcd" * len(rows)
    assert shown == "".join(sorted("".join((wanted + labels).split())))
