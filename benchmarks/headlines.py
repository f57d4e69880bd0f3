"""The figures in README.md and docs/figures.md, each taken from the table that a command wrote.

A figure stands between marks: `<!-- =NAME -->0.83<!-- = -->`. `python -m benchmarks.figures` writes
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isnan
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
_MARKED = re.compile(r"(<!-- =(?P<name>[a-z-]+) -->).*?(<!-- = -->)")
_RATIO = r"([\d.]+)"


def filled(page: str) -> str:
    """Return the text of a page with the value of each figure as its table has it."""
    return _MARKED.sub(lambda found: f"{found[1]}{HEADLINES[found['name']]()}{found[3]}", page)


def names(page: str) -> list[str]:
    """Return the names of the figures that a page shows."""
    return [found["name"] for found in _MARKED.finditer(page)]


def _said(page: str, pattern: str) -> Callable[[], str]:
    """Take what a command wrote below or into its table; the pattern fits once."""

    def value() -> str:
        (found,) = re.findall(pattern, (DOCS / page).read_text(encoding="utf-8"))
        return str(found)

    return value


def _column(page: str, mark: str, head: str) -> list[float]:
    """Return the numbers that begin a column's cells in the first table below a mark; NaN for an
    empty cell."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(mark)[2].lstrip()
    lines = text.partition("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    place = rows[0].index(head)
    return [float((row[place].split() or ["nan"])[0]) for row in rows[2:]]


def _alone() -> str:
    ratios = _column("ncnn.md", "<!-- benchmarks.byoc --docs -->", "ncnn alone")
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def _mcu() -> str:
    # The table's first two columns have no common name: its own ratio is rounded to one digit.
    page, mark = "bare-metal.md", "<!-- benchmarks/mcu.py writes from here -->"
    ours = _column(page, mark, "M instructions")
    theirs = _column(page, mark, "TFLM")
    pairs = zip(ours, theirs, strict=True)
    ratios = [mine / other for mine, other in pairs if not isnan(other)]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


_CPU, _COUNTS = "ratios on one thread: ", "Geometric mean of the ratios to "
HEADLINES: dict[str, Callable[[], str]] = {
    "cpu-time": _said("schedules.md", rf"{_CPU}{_RATIO}, the largest"),
    "cpu-worst": _said("schedules.md", rf"{_CPU}[\d.]+, the largest (\d+\.\d+)"),
    "cpu-memory": _said("schedules.md", rf"Peak memory: {_RATIO} times onnxruntime's"),
    "cpu-memory-worst": _said("schedules.md", r"Peak memory: .*, at most (\d+\.\d+)"),
    "arm-counts": _said("schedules.md", rf"{_COUNTS}onnxruntime: {_RATIO}, the"),
    "arm-counts-worst": _said("schedules.md", rf"{_COUNTS}onnxruntime: .* largest (\d+\.\d+)"),
    "arm-ncnn": _said("schedules.md", rf"{_COUNTS}ncnn: {_RATIO}, the"),
    "arm-ncnn-worst": _said("schedules.md", rf"{_COUNTS}ncnn: .* largest (\d+\.\d+)"),
    "ncnn-alone": _alone,
    "mcu": _mcu,
    "tuned-mobilenet": _said("tuning.md", rf"tuned, of onnxruntime's \| {_RATIO} "),
    "tuned-resnet": _said("tuning.md", rf"tuned, of onnxruntime's \| [\d.]+ \| {_RATIO} "),
    "search": _said("tuning.md", rf"edgekit, of MetaSchedule's \| {_RATIO} times"),
}
