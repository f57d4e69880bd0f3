"""A part of a page: pictures as data, the same figures as a table, or what makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.base.wording import printable

Row = Mapping[str, object]

OWN = "edgekit"
"""The owner of edgekit's own kernels."""
_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))
_LEAST = 0.5


@dataclass(frozen=True)
class Chart:
    """One picture: a Vega-Lite specification, and a sentence for those who do not see it."""

    label: str
    spec: Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()
    """The columns that hold numbers."""


@dataclass(frozen=True)
class Node:
    """A box of the graph."""

    title: str
    """The layer's name, shortened to fit."""
    lines: tuple[str, ...]
    """The lines below it."""
    owner: str
    share: float
    """The share of the time; 0 where it was not measured."""
    facts: tuple[tuple[str, str], ...]
    """All that is known about it."""
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Edge:
    start: int
    end: int
    path: str
    """The way in SVG's words."""


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    owners: tuple[str, ...]
    width: float
    height: float


@dataclass(frozen=True)
class Part:
    """A part of a page. Without a picture, `missing` says which command makes its data."""

    name: str
    title: str
    text: str
    charts: tuple[Chart, ...] = ()
    table: Table | None = None
    graph: Graph | None = None
    missing: str = ""


@dataclass(frozen=True)
class Scale:
    """The unit in which a chart shows values."""

    factor: float
    unit: str


def time_scale(largest: float, unit: str) -> Scale:
    """Return the unit for times up to `largest`, which are in `unit`."""
    if unit != "seconds":
        return Scale(1.0, unit)
    fitting = (Scale(*each) for each in _UNITS if largest * each[0] >= _LEAST)
    return next(fitting, Scale(*_UNITS[-1]))


def table_of(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()
) -> Table:
    """Return a table of texts. Names of models and layers are not trusted, but made printable."""
    return Table(tuple(columns), tuple(tuple(map(printable, row)) for row in rows), tuple(right))


def chart_of(label: str, rows: Iterable[Row], **spec: Any) -> Chart:
    """Return a chart of rows as wide as its place on the page."""
    values = [
        {key: printable(one) if isinstance(one, str) else one for key, one in row.items()}
        for row in rows
    ]
    return Chart(printable(label), {"width": "container", "data": {"values": values}, **spec})


def channel(field: str, title: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a channel of numbers; its axis begins where the data do unless `zero` is given."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def names(field: str, title: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a channel of names, in the order of the rows."""
    return {"field": field, "type": "nominal", "title": title, "sort": None, **more}


def owners_channel(owners: Sequence[str]) -> dict[str, Any]:
    """Return the colours of owners: each has the same one in all charts of a page."""
    return names("owner", "run by", scale={"domain": list(owners)})


def tooltips(**titles: str) -> list[dict[str, Any]]:
    """Return what a mark shows under the pointer: texts of its row, with their titles."""
    return [{"field": field, "title": title, "type": "nominal"} for field, title in titles.items()]
