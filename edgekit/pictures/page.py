"""Writes parts as HTML: headings, texts and tables, and pictures as JSON that a script draws.

Names of models, layers and devices are not trusted: they are quoted text or data, never markup.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256

from edgekit.base import svg
from edgekit.base.json_text import json_line
from edgekit.base.quoting import html_text
from edgekit.pictures.assets import scripts, styles
from edgekit.pictures.parts import Graph, Part, Table

_MOST_ROWS = 500
_KEYS = "Layers: arrow keys follow the data, + and − zoom"
_LONGEST, _LONG = 60, " class=long"
"""The characters of a fact that needs a row of its own, and how it gets one."""
_INSIDE_HTML = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}
"""The characters that mean something in HTML or end a line of a script."""


def page_of(title: str, facts: Sequence[tuple[str, str]], parts: Sequence[Part]) -> str:
    """Return a whole page that needs no other file and reaches no network."""
    style, code = styles(), scripts()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src {' '.join(map(_hash, code))}"
    )
    links = "".join(f'<a href="#{one.name}">{html_text(one.title)}</a>' for one in parts)
    known = "".join(
        f"<div{_LONG if len(value) > _LONGEST else ''}><dt>{html_text(name)}</dt>"
        f"<dd>{_with_code(value)}</dd></div>"
        for name, value in facts
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html_text(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{html_text(title)}</title><style>{style}</style></head>\n<body>"
        f'<header><h1>{html_text(title)}</h1><button id="theme" type="button">Theme: as the system'
        f'</button></header><nav aria-label="Parts">{links}</nav><main>'
        f'<dl class="facts">{known}</dl>\n'
        + "\n".join(map(part_html, parts))
        + f"</main>\n{pictures_data(parts)}"
        + "".join(f"<script>{text}</script>\n" for text in code)
        + "</body></html>\n"
    )


def part_html(part: Part) -> str:
    """Return a section. Its pictures are drawn from `pictures_data`."""
    if part.graph is not None:
        shown = _graph_html(part)
    elif part.charts:
        shown = charts_html(part)
    else:
        shown = f'<p class="missing">No data: {_with_code(part.missing)}.</p>'
    table = "" if part.table is None else _table_html(part)
    return (
        f'<section id="{part.name}" aria-labelledby="{part.name}-title">'
        f'<h2 id="{part.name}-title">{html_text(part.title)}</h2>'
        f"<p>{_with_code(part.text)}</p>{shown}{table}</section>"
    )


def charts_html(part: Part) -> str:
    """Return the places of a part's charts, one below the other."""
    return "".join(
        f'<div class="chart" role="img" aria-label="{html_text(chart.label)}" '
        f'data-part="{part.name}" data-chart="{number}"></div>'
        for number, chart in enumerate(part.charts)
    )


def pictures_data(parts: Iterable[Part]) -> str:
    """Return the pictures as data inside HTML."""
    pictures = {
        part.name: {"charts": [chart.spec for chart in part.charts], "graph": part.graph}
        for part in parts
    }
    text = json_line(pictures).translate(_INSIDE_HTML)
    return f'<script type="application/json" id="pictures">{text}</script>\n'


def _graph_html(part: Part) -> str:
    assert part.graph is not None
    return f"""<div class="graph" data-part="{part.name}">
<div class="tools"><label for="{part.name}-search">Search</label>
<input type="search" id="{part.name}-search" autocomplete="off" spellcheck="false">
<output class="found"></output>
<button type="button" data-do="in" aria-label="Zoom in">+</button>
<button type="button" data-do="out" aria-label="Zoom out">−</button>
<button type="button" data-do="fit">Fit</button></div>
<div class="legend">{_legend(part.graph)}</div>
<div class="stage">
{svg.element("svg", role="group", aria_label=_KEYS)}
<aside aria-live="polite"><p>Choose a layer to see all that is known about it.</p></aside>
</div></div>"""


def _legend(graph: Graph) -> str:
    return "".join(
        f'<span><i class="owner-{number % 7}"></i>{html_text(owner)}</span>'
        for number, owner in enumerate(graph.owners)
    )


def _table_html(part: Part) -> str:
    table = part.table
    assert table is not None
    shown = table.rows[:_MOST_ROWS]
    more = len(table.rows) - len(shown)
    rest = f"<p>and {more:,} more rows, which the data of the report have</p>" if more > 0 else ""
    label = f"{part.title}: table"
    return (
        f"<details><summary>{html_text(label)}</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html_text(label)}">'
        f"{_rows_html(table, shown)}</div>{rest}</details>"
    )


def _rows_html(table: Table, rows: Sequence[Sequence[str]]) -> str:
    numbers = {place for place, name in enumerate(table.columns) if name in table.right}

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if place in numbers else ''}>{html_text(cell)}</{tag.split()[0]}>"
            for place, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    head = cells(table.columns, 'th scope="col"')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _with_code(text: str) -> str:
    """Quote a text of edgekit's own; words in backquotes are code."""
    parts = html_text(text).split("`")
    return "".join(f"<code>{one}</code>" if place % 2 else one for place, one in enumerate(parts))


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
