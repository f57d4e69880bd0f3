"""A matrix as people and scripts read it: which numbers are the boards' own."""

from __future__ import annotations

from dataclasses import replace

from edgekit.verbs.matrix_report import Cell, Matrix, as_csv, as_html, as_markdown, caution, row_of

DONE = Cell(
    board="rpi4",
    offload="none",
    status="done",
    error=None,
    device="kitchen",
    digest="ab" * 32,
    measured_by="hardware",
    unit="seconds",
    median=0.010,
    p90=0.011,
    minimum=0.009,
    runs=30,
    memory=None,
    watts=None,
    joules=None,
    max_error=0.0,
    oracle="onnxruntime",
    accuracy=(),
    offloaded="nothing",
    when="2026-01-01T00:00:00Z",
)
EMULATED = replace(DONE, board="rpi5", device="rpi5", measured_by="emulator", median=0.5, p90=0.6)
IMPOSSIBLE = replace(
    DONE, status="not possible", error="rpi4 can't offload to tensorrt", measured_by=None
)


def matrix(*cells: Cell) -> Matrix:
    return Matrix("net", "cd" * 32, "0.1.0", cells)


def test_an_emulators_numbers_are_told_from_the_boards_own_everywhere() -> None:
    both = matrix(DONE, EMULATED)
    assert row_of(DONE)[2] == "10 ms"
    assert row_of(EMULATED)[2] == "500 ms emulated"
    assert caution(matrix(DONE)) == ""
    assert caution(both).startswith("The numbers of rpi5 are an emulator's")
    for text in (as_markdown(both), as_html(both)):
        assert "500 ms emulated" in text
        assert "not to be published as its own" in text
    assert "emulator" in as_csv(both)


def test_numbers_of_two_measurers_share_no_plot() -> None:
    page = as_html(matrix(DONE, replace(DONE, offload="ncnn"), EMULATED))
    assert page.count("<svg") == 2
    assert "<h2>seconds</h2>" in page
    assert "<h2>seconds emulated</h2>" in page


def test_what_a_board_cannot_use_is_no_failure() -> None:
    found = matrix(DONE, IMPOSSIBLE)
    assert found.failed == ()
    assert "| not possible |" in as_markdown(found)
    assert "tensorrt" in as_markdown(found)
