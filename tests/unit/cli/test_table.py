"""A table fits the terminal and stays a table: it wraps text and leaves columns out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.wording import width
from edgekit.cli.table import KEPT_SPACE, Table

BOARDS = Table(
    ("name", "cpu", "RAM", "board"),
    [
        ("beagleplay", "cortex-a53", "2 GiB", "BeaglePlay (TI AM625)"),
        ("jetson-orin", "cortex-a78ae", "8 GiB", "NVIDIA Jetson Orin Nano 8 GB"),
    ],
    right=("RAM",),
    spare=("cpu",),
)
RUNS = Table(
    ("run", "when", "model", "device", "median", "p90", "memory", "offload"),
    [
        [
            *("8c1f0a", "11-22 21:30", "mobilenet_v2", "kitchen"),
            *("14.3 ms", "15.0 ms", "3.40 MiB", "ncnn"),
        ],
        [
            *("07bb3e", "11-22 21:29", "anomaly_量化", "shed"),
            *("412 µs", "430 µs", "212 KiB", "none"),
        ],
    ],
    right=("median", "p90", "memory"),
    spare=("memory", "p90"),
)

CELLS = st.text("abc xyz-模", max_size=30).map(lambda text: " ".join(text.split()))
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), max_size=5)


def test_without_a_limit_a_row_is_one_line() -> None:
    assert BOARDS.lines(None) == (
        ["name         cpu             RAM  board"],
        [
            "beagleplay   cortex-a53    2 GiB  BeaglePlay (TI AM625)",
            "jetson-orin  cortex-a78ae  8 GiB  NVIDIA Jetson Orin Nano 8 GB",
        ],
        [],
    )


def test_the_last_column_gives_way_first() -> None:
    assert BOARDS.lines(58) == (
        ["name         cpu             RAM  board"],
        [
            "beagleplay   cortex-a53    2 GiB  BeaglePlay (TI AM625)",
            "jetson-orin  cortex-a78ae  8 GiB  NVIDIA Jetson Orin Nano",
            "                                  8 GB",
        ],
        [],
    )


def test_then_the_widest_column_whose_words_stay_whole() -> None:
    table = Table(("reason", "what"), [("it is too long for one line", "y" * 12)])
    assert table.lines(30) == (
        ["reason            what"],
        ["it is too long    yyyyyyyyyyyy", "for one line"],
        [],
    )


PATH = "/usr/local/bin/a-very-long-name-indeed"


def test_a_path_stays_whole_to_be_copied() -> None:
    table = Table(("tool", "found"), [("qemu-img", f"the program {PATH}")])
    assert table.lines(32) == (
        ["tool      found"],
        ["qemu-img  the program", f"          {PATH}"],
        [],
    )
    first = Table(("found", "tool", "why"), [(PATH, "qemu-img", "it starts twins")])
    assert first.lines(50) == (["found" + " " * 35 + "tool"], [f"{PATH}  qemu-img"], ["why"])
    assert first.lines(20) == (["found"], [PATH], ["tool", "why"])


def test_a_path_with_spaces_stays_whole_too() -> None:
    path = "/home/ada/Prüfstand 板/edgekit.toml".replace(" ", KEPT_SPACE)
    shown = Table(("name", "known from"), [("left", path)]).lines(30)[1]
    assert shown == ["left  /home/ada/Prüfstand 板/edgekit.toml"]


def test_a_name_that_is_copied_is_not_broken_at_its_hyphens() -> None:
    names = Table(("what", "needed"), [("aarch64-linux-gnu-objcopy", "a program on PATH")])
    lines = names.lines(42)[1]
    assert lines == ["aarch64-linux-gnu-objcopy  a program on", "                           PATH"]


def test_where_columns_do_not_fit_a_spare_one_is_left_out() -> None:
    assert BOARDS.lines(33) == (
        ["name           RAM  board"],
        [
            "beagleplay   2 GiB  BeaglePlay",
            "                    (TI AM625)",
            "jetson-orin  8 GiB  NVIDIA Jetson",
            "                    Orin Nano 8",
            "                    GB",
        ],
        ["cpu"],
    )


@pytest.mark.parametrize(
    ("room", "shown", "left_out"),
    [
        (
            80,
            [
                "run     when         model         device    median      p90    memory  offload",
                "8c1f0a  11-22 21:30  mobilenet_v2  kitchen  14.3 ms  15.0 ms  3.40 MiB  ncnn",
                "07bb3e  11-22 21:29  anomaly_量化  shed      412 µs   430 µs   212 KiB  none",
            ],
            [],
        ),
        (
            75,
            [
                "run     when         model         device    median      p90  offload",
                "8c1f0a  11-22 21:30  mobilenet_v2  kitchen  14.3 ms  15.0 ms  ncnn",
                "07bb3e  11-22 21:29  anomaly_量化  shed      412 µs   430 µs  none",
            ],
            ["memory"],
        ),
        (
            60,
            [
                "run     when         model         device    median  offload",
                "8c1f0a  11-22 21:30  mobilenet_v2  kitchen  14.3 ms  ncnn",
                "07bb3e  11-22 21:29  anomaly_量化  shed      412 µs  none",
            ],
            ["p90", "memory"],
        ),
    ],
)
def test_a_wide_table_on_three_terminals(room: int, shown: list[str], left_out: list[str]) -> None:
    header, lines, missing = RUNS.lines(room)

    assert [*header, *lines] == shown
    assert missing == left_out
    assert RUNS.lines(120) == RUNS.lines(None)


def test_the_last_means_is_to_break_the_words_of_the_first_column() -> None:
    assert BOARDS.lines(6) == (
        ["name"],
        ["beagle", "play", "jetson", "-orin"],
        ["cpu", "RAM", "board"],
    )


@pytest.mark.parametrize("right", [(), ("b",)])
@given(ROWS, st.integers(8, 120))
def test_no_width_is_exceeded_and_no_letter_of_a_shown_column_is_lost(
    right: tuple[str, ...], rows: list[tuple[str, str, str, str]], room: int
) -> None:
    header, lines, left_out = Table(("a", "b", "c", "d"), rows, right).lines(room)

    # Where a wide letter meets the edge, it may stand one column beyond.
    assert all(width(line) <= room + 1 for line in (*header, *lines))
    shown = "".join(sorted("".join("".join(lines).split())))
    places = [place for place, name in enumerate("abcd") if name not in left_out]
    wanted = "".join(row[place] for row in rows for place in places)
    assert shown == "".join(sorted("".join(wanted.split())))
    assert "".join("".join(header).split()) == "".join("abcd"[place] for place in places)
