"""Writes a matrix of measurements as files: Markdown, CSV, HTML with plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from edgekit.base import svg
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.measurer import Measurer, beside
from edgekit.base.quoting import csv_text, html_text, markdown_text
from edgekit.base.wording import duration, energy, measured, number, size
from edgekit.store.runs import AccuracyFigure, accuracy_in_words

_WIDTH, _ROW = 640, 26
HEADS = (
    "board",
    "offload",
    "median",
    "ratio",
    "p90",
    "fastest",
    "memory",
    "watts",
    "energy",
    "search",
    "max error",
    "accuracy",
    "offloaded",
)


Status = Literal["done", "failed", "not possible"]


@dataclass(frozen=True)
class Cell:
    """The result of one board with one offload. Times are in `unit`."""

    board: str
    offload: str
    """The column: auto, none, tuned, int8, names joined by +, or `beside` and a runtime."""
    status: Status
    error: str | None
    device: str | None
    digest: str | None
    """The bundle's digest."""
    measured_by: Measurer | None
    """What the numbers come from; None if nothing was measured."""
    unit: str
    median: float | None
    p90: float | None
    minimum: float | None
    runs: int
    memory: int | None
    watts: float | None
    """Mean power during the measurement."""
    joules: float | None
    """Energy of an inference."""
    max_error: float | None
    """The largest error against the oracle over all outputs."""
    oracle: str | None
    accuracy: tuple[AccuracyFigure, ...]
    """The figures on a data set, the most important first; none if it was not evaluated."""
    offloaded: str
    """A summary of what went to libraries, or "nothing"."""
    when: str
    ratio: float | None = None
    """The time as a multiple of the board's first column's, in alternating rounds; their median."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    search_seconds: float | None = None
    """The duration of the search before the build."""
    search_joules: float | None = None
    """The energy that the search took on the machine that compiled."""


def unmeasured(board: str, offload: str, status: Status, reason: str) -> Cell:
    return Cell(
        board=board,
        offload=offload,
        status=status,
        error=reason,
        device=None,
        digest=None,
        measured_by=None,
        unit="seconds",
        median=None,
        p90=None,
        minimum=None,
        runs=0,
        memory=None,
        watts=None,
        joules=None,
        max_error=None,
        oracle=None,
        accuracy=(),
        offloaded="nothing",
        when=now(),
    )


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Matrix:
    model: str
    sha256: str
    edgekit_version: str
    cells: tuple[Cell, ...]
    files: tuple[Path, ...] = ()
    """The reports."""

    @property
    def failed(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.status == "failed")


def write_reports(matrix: Matrix, folder: Path) -> tuple[Path, ...]:
    files = {
        "matrix.md": as_markdown(matrix),
        "matrix.csv": as_csv(matrix),
        "matrix.html": as_html(matrix),
    }
    written = []
    for name, text in files.items():
        path = folder / name
        with storage_errors("write the report", path):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
        written.append(path)
    return tuple(written)


def row_of(cell: Cell) -> tuple[str, ...]:
    if cell.status != "done":
        empty = ("",) * (len(HEADS) - 4)
        return (cell.board, cell.offload, cell.status, *empty, cell.error or "")
    return (
        cell.board,
        cell.offload,
        beside(amount(cell, cell.median), cell.measured_by),
        _ratio(cell),
        amount(cell, cell.p90),
        amount(cell, cell.minimum),
        "" if cell.memory is None else size(cell.memory),
        "" if cell.watts is None else number(cell.watts),
        "" if cell.joules is None else energy(cell.joules),
        _search(cell),
        "" if cell.max_error is None else number(cell.max_error),
        accuracy_in_words(cell.accuracy),
        cell.offloaded,
    )


def _ratio(cell: Cell) -> str:
    """Say the ratio, and how far it was spread over the rounds."""
    if cell.ratio is None or cell.ratio_low is None or cell.ratio_high is None:
        return ""
    return f"{cell.ratio:.2f} ({cell.ratio_low:.2f} to {cell.ratio_high:.2f})"


def _search(cell: Cell) -> str:
    """Say how long a search took, and its energy if that was measured."""
    if cell.search_seconds is None:
        return ""
    took = duration(cell.search_seconds)
    return took if cell.search_joules is None else f"{took}, {energy(cell.search_joules)}"


def amount(cell: Cell, value: float | None) -> str:
    return "" if value is None else measured(value, cell.unit)


def caution(matrix: Matrix) -> str:
    """Say which of the numbers are not the boards' own; empty if all are."""
    cells = [cell for cell in matrix.cells if cell.status == "done"]
    engines = dict.fromkeys(cell.board for cell in cells if cell.measured_by == "engine")
    boards = dict.fromkeys(
        cell.board for cell in cells if cell.measured_by not in ("hardware", "engine")
    )
    sentences = []
    if boards:
        sentences.append(
            f"The numbers of {', '.join(boards)} are an emulator's: they say nothing about how "
            "fast the board is, and are not to be published as its own."
        )
    if engines:
        sentences.append(
            f"The numbers of {', '.join(engines)} are those of an engine on this machine: on "
            "another machine they differ."
        )
    return " ".join(sentences)


def as_markdown(matrix: Matrix) -> str:
    lines = [
        f"# {markdown_text(matrix.model)}",
        "",
        f"Measured by edgekit {matrix.edgekit_version}; the model's SHA-256 begins with "
        f"`{matrix.sha256[:16]}`. What was measured was compared with its oracle first.",
        "",
        *([caution(matrix), ""] if caution(matrix) else []),
        "| " + " | ".join(HEADS) + " |",
        "|" + "---|" * len(HEADS),
    ]
    lines += [
        "| " + " | ".join(markdown_text(text) for text in row_of(cell)) + " |"
        for cell in matrix.cells
    ]
    return "\n".join(lines) + "\n"


def as_csv(matrix: Matrix) -> str:
    rows = [{**asdict(cell), "accuracy": _assigned(cell)} for cell in matrix.cells]
    return csv_text([list(rows[0]), *(list(row.values()) for row in rows)]) if rows else ""


def _assigned(cell: Cell) -> str:
    return " ".join(f"{figure.name}={figure.value:.6g}" for figure in cell.accuracy)


def as_html(matrix: Matrix) -> str:
    rows = "".join(
        "<tr>" + "".join(f"<td>{html_text(text)}</td>" for text in row_of(cell)) + "</tr>"
        for cell in matrix.cells
    )
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    groups: dict[tuple[str, Measurer | None], list[Cell]] = {}
    for cell in matrix.cells:
        if cell.status == "done":
            groups.setdefault((cell.unit, cell.measured_by), []).append(cell)
    plots = "".join(_plot(cells, beside(*measure)) for measure, cells in groups.items())
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{html_text(matrix.model)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{html_text(matrix.model)}</h1>"
        f"<p>Measured by edgekit {html_text(matrix.edgekit_version)}. What was measured was "
        f"compared with its oracle first. {html_text(caution(matrix))}</p>{plots}"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></body></html>\n"
    )


_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;"
    "margin:2rem auto;padding:0 1rem}table{border-collapse:collapse}td,th{text-align:left;"
    "padding:.3rem .6rem;border-bottom:1px solid #8884}svg{max-width:100%}"
    "svg text{font-size:12px;fill:currentColor}svg rect{fill:#3b7dd8}svg line{stroke:currentColor}"
)


def _plot(cells: Sequence[Cell], title: str) -> str:
    """Draw a bar to the median and a line from the fastest to the ninetieth percentile."""
    done = [cell for cell in cells if cell.median is not None]
    if not done:
        return ""
    most = max(cell.p90 or cell.median or 0.0 for cell in done) or 1.0
    left, right = 180, 90
    scale = (_WIDTH - left - right) / most
    parts = []
    for place, cell in enumerate(done):
        top = place * _ROW + 4
        median, low, high = cell.median or 0.0, cell.minimum or 0.0, cell.p90 or 0.0
        end = left + high * scale
        parts += [
            svg.text(0, top + 14, f"{cell.board}, {cell.offload}"),
            svg.rectangle(left, top, median * scale, _ROW - 8),
            svg.line(left + low * scale, top + 9, end, top + 9),
            svg.text(end + 6, top + 14, amount(cell, median)),
        ]
    height = len(done) * _ROW + 8
    drawn = svg.picture(_WIDTH, height, *parts, role="img", aria_label="medians")
    return f"<h2>{html_text(title)}</h2>{drawn}"
