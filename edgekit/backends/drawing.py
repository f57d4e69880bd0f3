"""Draw a partition as an SVG, and as an HTML page around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from edgekit.backends.layout import Layout, Point, Size, lay_out
from edgekit.backends.picture import Box, Group, group_chains
from edgekit.backends.report import PartitionReport
from edgekit.base import svg
from edgekit.base.quoting import html_text
from edgekit.base.wording import amount, counted, percent, printable, size

MOST_APART = 60
"""The most boxes that are drawn one by one; above that, a chain becomes one box."""

_COLOURS = ("#2f7ed8", "#e07b00", "#2a9d55", "#a64dc9", "#c9304c", "#6b7a12")
_TVM_COLOUR = "#8a8f98"
_END_COLOUR = "#ffffff"
_CHARACTER = 6.6
_LINE = 15.0
_LONGEST_LINE = 34
_TIP = svg.element(
    "defs",
    svg.element(
        "marker",
        svg.element("path", d="M0 0 8 4 0 8z", fill="#555"),
        id="tip",
        viewBox="0 0 8 8",
        refX=7,
        refY=4,
        markerWidth=7,
        markerHeight=7,
        orient="auto",
    ),
)
_MOST_TOOLTIP_LINES = 40
"""The most lines in the tooltip of one box."""


def draw_svg(boxes: Sequence[Box], backends: Sequence[str]) -> str:
    groups = group_chains(boxes, MOST_APART)
    texts = [_text(group) for group in groups]
    sizes = [
        Size(max(map(len, lines)) * _CHARACTER + 20, len(lines) * _LINE + 10) for lines in texts
    ]
    layout = lay_out(sizes, [group.reads for group in groups])
    width, height = layout.size.width, layout.size.height
    parts = [_TIP, svg.rectangle(0, 0, width, height, fill="#fff"), *_arrows(layout, groups)]
    for group, lines, box_size, place in zip(groups, texts, sizes, layout.places, strict=True):
        parts.append(_drawn(group, lines, box_size, place, backends))
    return svg.picture(width, height, *parts, font_family="sans-serif", font_size=12) + "\n"


def draw_html(report: PartitionReport, picture: str) -> str:
    """Return a self-contained HTML page."""
    coverage = report.coverage
    facts = [
        f"{coverage.operators_offloaded} of {counted(coverage.operators, 'operator')} "
        f"({percent(coverage.operators_share)})",
        f"{percent(coverage.macs_share)} of {amount(coverage.macs)} MACs",
        counted(coverage.regions, "region"),
        f"{size(coverage.crossing_bytes)} in {counted(coverage.crossings, 'boundary tensor')}",
    ]
    legend = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{html_text(name)}</span>'
        for name, colour in (*zip(report.backends, _COLOURS, strict=False), ("TVM", _TVM_COLOUR))
    )
    rows = "\n".join(
        f"<tr><td>{html_text(d.operator)}</td><td>{html_text(d.node)}</td>"
        f"<td>{amount(d.macs) if d.macs else ''}</td><td>{html_text(d.backend or 'TVM')}</td>"
        f"<td>{html_text(d.reason)}</td></tr>"
        for d in report.decisions
    )
    return _PAGE.format(
        title=html_text(f"{report.model} on {report.board}"),
        facts=html_text(" · ".join(facts)),
        legend=legend,
        picture=picture,
        rows=rows,
    )


def _text(group: Group) -> list[str]:
    """Return the lines of a box: the operator's name, or a summary of the chain."""
    first, last = group.boxes[0], group.boxes[-1]
    if len(group.boxes) == 1:
        names = first.nodes[:1] if first.nodes else ()
        lines = ["+".join(_short(name) for name in first.operators), *names]
    else:
        counts = Counter("+".join(map(_short, box.operators)) for box in group.boxes)
        kinds = [f"{name} ×{count}" if count > 1 else name for name, count in counts.most_common()]
        more = [f"and {len(kinds) - 4} more"] if len(kinds) > 5 else kinds[4:]
        noun = "operators" if first.region is None else "layers"
        lines = [f"{len(group.boxes)} {noun}", *kinds[:4], *more]
    if last.shape is not None:
        lines.append(" × ".join(map(str, last.shape)) or "scalar")
    return [_cut(printable(line)) for line in lines]


def _drawn(
    group: Group, lines: Sequence[str], box: Size, place: Point, backends: Sequence[str]
) -> str:
    first = group.boxes[0]
    colour = _colour(first, backends)
    ink = "#000" if first.kind != "operator" else "#fff"
    x, y = place.x + box.width / 2, place.y + 18
    style: dict[str, str | float] = {"text_anchor": "middle", "fill": ink}
    texts = [svg.text(x, y, lines[0], **style, font_weight="bold")]
    for row, line in enumerate(lines[1:], start=1):
        texts.append(svg.text(x, y + row * _LINE, line, **style, font_size=11))
    frame = svg.rectangle(place.x, place.y, box.width, box.height, rx=5, fill=colour, stroke="#444")
    return svg.with_tooltip(_tooltip(group), frame, *texts)


def _tooltip(group: Group) -> str:
    """Return the tooltip of a box."""
    first = group.boxes[0]
    if first.kind != "operator":
        return first.operators[0]
    lines = [f"{first.backend or 'TVM'}: {first.reason}"]
    if first.region:
        lines.append(f"region {first.region}")
    macs = sum(box.macs for box in group.boxes)
    if macs:
        lines.append(f"{amount(macs)} multiply-accumulates")
    for box in group.boxes:
        line = "+".join(box.operators) + (f"  {' '.join(box.nodes)}" if box.nodes else "")
        if len(group.boxes) > 1 and box.reason != first.reason:
            line += f"  ({box.reason})"
        lines.append(line)
    if len(lines) > _MOST_TOOLTIP_LINES:
        lines = [*lines[:_MOST_TOOLTIP_LINES], f"and {len(lines) - _MOST_TOOLTIP_LINES} more"]
    return "\n".join(lines)


def _arrows(layout: Layout, groups: Sequence[Group]) -> list[str]:
    """Draw the arrows; those that cross a region's boundary stand out."""
    arrows = []
    for (start, end), points in layout.routes.items():
        crosses = groups[start].boxes[-1].region != groups[end].boxes[0].region
        stroke, width = ("#c9304c", 2) if crosses else ("#555", 1)
        ink: dict[str, svg.Value] = {
            "fill": "none",
            "stroke": stroke,
            "stroke_width": width,
            "marker_end": "url(#tip)",
        }
        arrows.append(svg.element("path", d=_curve(points), **ink))
    return arrows


def _curve(points: Sequence[Point]) -> str:
    words = [f"M{points[0].x:.1f} {points[0].y:.1f}"]
    for before, after in pairwise(points):
        middle = (before.y + after.y) / 2
        words.append(
            f"C{before.x:.1f} {middle:.1f} {after.x:.1f} {middle:.1f} {after.x:.1f} {after.y:.1f}"
        )
    return "".join(words)


def _colour(box: Box, backends: Sequence[str]) -> str:
    if box.kind != "operator":
        return _END_COLOUR
    if box.backend is None:
        return _TVM_COLOUR
    return _COLOURS[list(backends).index(box.backend) % len(_COLOURS)]


def _short(operator: str) -> str:
    return operator.removeprefix("nn.").removeprefix("image.")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 14px sans-serif; margin: 1.5em; color: #222; }}
.key {{ margin-right: 1.2em; }}
.key i {{ display: inline-block; width: 1em; height: 1em; margin-right: .4em; }}
.picture {{ overflow: auto; max-height: 80vh; border: 1px solid #ccc; margin: 1em 0; }}
.picture g:hover rect {{ stroke-width: 3; }}
table {{ border-collapse: collapse; }}
td, th {{ text-align: left; padding: .2em .8em; border-bottom: 1px solid #ddd; }}
td:nth-child(3) {{ text-align: right; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{facts}</p>
<p>{legend} Red arrows cross a region's boundary.
Hold the pointer over a box to see why.</p>
<div class="picture">
{picture}</div>
<table>
<tr><th>operator</th><th>node</th><th>MACs</th><th>runs on</th><th>why</th></tr>
{rows}
</table>
</body>
</html>
"""
