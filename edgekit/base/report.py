"""What all reports can do: become plain data, a line of text, or HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.base.json_text import plain
from edgekit.base.quoting import html_text
from edgekit.base.wording import counted, printable

if TYPE_CHECKING:
    from edgekit.base.arrays import Array

_MOST_ROWS = 50
"""The rows of a table in a notebook; `to_dict` has all of them."""


class Report:
    """A base of the dataclasses that verbs return. `str(report)` is its headline."""

    def headline(self) -> str:
        """Say the result in one line."""
        return type(self).__name__

    def to_dict(self) -> dict[str, Any]:
        """Return the report as the command's --json prints it: dicts, lists, text and numbers."""
        return dict(plain(self))

    def __str__(self) -> str:
        return printable(self.headline())

    def _repr_html_(self) -> str:
        """Return HTML for a notebook. Names of models and layers are not trusted, but escaped."""
        return f"<div><strong>{html_text(self.headline())}</strong>{_html(self.to_dict())}</div>"


def nanoseconds_of(seconds: Iterable[float]) -> Array:
    """Return times as an array of whole nanoseconds, to be plotted."""
    import numpy as np

    return np.rint(np.array(list(seconds), np.float64) * 1e9).astype(np.int64)


def _html(value: object) -> str:
    if isinstance(value, Mapping):
        return _table(f"{_head(key)}{_cell(_html(item))}" for key, item in value.items())
    if isinstance(value, list) and value:
        if all(isinstance(item, dict) for item in value):
            return _table_of_records(value)
        return html_text(_words(value))
    return html_text(_words(value))


def _table_of_records(records: Sequence[Mapping[str, object]]) -> str:
    columns = list(dict.fromkeys(key for record in records for key in record))
    head = "".join(_head(column) for column in columns)
    rows = [
        "".join(_cell(html_text(_words(record.get(key)))) for key in columns)
        for record in records[:_MOST_ROWS]
    ]
    more = len(records) - _MOST_ROWS
    return _table([head, *rows]) + (f"and {more} more" if more > 0 else "")


def _table(rows: Iterable[str]) -> str:
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _head(key: object) -> str:
    return f'<th align="left" valign="top">{html_text(str(key).replace("_", " "))}</th>'


def _cell(html: str) -> str:
    return f'<td align="left" valign="top">{html}</td>'


def _words(value: object) -> str:
    """Return a cell's text; a long list of numbers is shortened to its ends."""
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_words(item)}" for key, item in value.items())
    if isinstance(value, list):
        if len(value) > 8 and all(isinstance(item, (int, float)) for item in value):
            return (
                f"{counted(len(value), 'value')} from {_words(min(value))} to {_words(max(value))}"
            )
        shown = "; ".join(_words(item) for item in value[:_MOST_ROWS])
        return shown if len(value) <= _MOST_ROWS else f"{shown} and {len(value) - _MOST_ROWS} more"
    return str(value)
