"""Reports as text, as data and in a notebook."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from edgekit.base.errors import UsageError
from edgekit.base.json_text import json_text
from edgekit.base.report import Report, nanoseconds_of

EVIL = "<script>alert(1)</script>&\"'\x1b[31m"


@dataclass(frozen=True)
class Layer:
    name: str
    seconds: float


@dataclass(frozen=True)
class Timed(Report):
    model: str
    path: Path
    layers: tuple[Layer, ...]
    samples: tuple[float, ...] = ()
    best: Layer | None = None

    def headline(self) -> str:
        return f"{self.model}: {len(self.layers)} layers"


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_data_is_what_json_prints() -> None:
    report = Timed("net", Path("a/b"), (Layer("x", float("nan")),), (1.0, 2.0))

    assert report.to_dict() == json.loads(json_text(report))
    assert report.to_dict()["layers"] == [{"name": "x", "seconds": None}]


def test_a_notebook_shows_names_of_layers_as_text() -> None:
    report = Timed(EVIL, Path(EVIL), (Layer(EVIL, 1.0),), best=Layer(EVIL, 2.0))

    shown = Tags(report._repr_html_())

    assert shown.tags == {"div", "strong", "table", "tr", "td", "th"}
    assert not shown.open
    assert shown.text.count("<script>alert(1)</script>&\"'") == 5
    assert "\x1b" not in shown.text


def test_a_notebook_shows_a_part_of_a_long_table_and_says_so() -> None:
    report = Timed("net", Path(), tuple(Layer(f"layer{i}", i) for i in range(1000)))

    shown = Tags(report._repr_html_())

    assert "layer49" in shown.text and "layer50" not in shown.text
    assert "and 950 more" in shown.text


def test_many_numbers_are_shown_by_their_ends() -> None:
    report = Timed("net", Path(), (), tuple(range(100)))

    assert "100 values from 0 to 99" in Tags(report._repr_html_()).text


def test_a_report_as_text_is_one_printable_line() -> None:
    report = Timed(EVIL, Path(), ())

    assert str(report) == "<script>alert(1)</script>&\"'\\x1b[31m: 0 layers"


def test_times_are_plotted_as_whole_nanoseconds() -> None:
    array = nanoseconds_of([1e-9, 0.25])

    assert (array.dtype.name, array.tolist()) == ("int64", [1, 250_000_000])


def test_an_error_shows_its_hint_in_a_notebook_and_below_a_traceback() -> None:
    error = UsageError("it failed", hint="do that", details=("because",))

    assert error._render_traceback_() == ["UsageError: it failed", "  because", "  hint: do that"]
    assert error.__notes__ == ["because", "hint: do that"]
