"""The farm as a page: tables that need no script, which a script keeps up to date."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.farm.status import DeviceStatus, FarmStatus
from edgekit.wording import duration, milliseconds

if TYPE_CHECKING:
    from edgekit.store.comparing import Comparison
    from edgekit.store.runs import BenchRun

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7d3b; --bad: #b3261e; --mute: #777 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.free, .busy { color: var(--good) } .lost, .quarantined { color: var(--bad) }
.mute { color: var(--mute) } nav a { margin-right: 1rem } h1 { font-size: 1.3rem }
svg { max-width: 100% } svg path { fill: none; stroke: currentColor; stroke-width: 1.5 }
"""
SCRIPT = """
'use strict';
const again = async () => {
  try {
    const answer = await fetch('/devices', {credentials: 'same-origin'});
    if (answer.ok) document.getElementById('devices').innerHTML = await answer.text();
    document.getElementById('live').textContent = answer.ok ? 'live' : 'the farm does not answer';
  } catch { document.getElementById('live').textContent = 'no connection'; }
};
setInterval(again, 2000);
"""
"""`/devices` gives the table as the page has it, every word of it escaped here."""

_SHORT = 12


@dataclass(frozen=True)
class History:
    """Runs of one model on one device, the oldest first."""

    model: str
    board: str
    device: str
    runs: tuple[BenchRun, ...]


def farm_page(status: FarmStatus) -> str:
    body = (
        f"<p>Up for {duration(status.now - status.started)}, tracker at "
        f"<code>{_text(status.tracker)}</code>. <span id='live' class='mute'></span></p>"
        f"<div id='devices'>{devices_table(status)}</div>"
    )
    return _page("Farm", body, script=True)


def devices_table(status: FarmStatus) -> str:
    rows = [_device_row(device, status.now) for device in status.devices]
    return _table(
        ("device", "board", "state", "since", "who", "load", "°C", "sessions", "why"),
        rows,
        numbers=(5, 6, 7),
    )


def _device_row(device: DeviceStatus, now: float) -> Sequence[str]:
    lease = device.lease
    who = "" if lease is None else f"{lease.owner}: {lease.purpose}"
    why = device.reason
    if device.again_at is not None:
        why = f"{why}; tried again in {duration(max(device.again_at - now, 0))}"
    return (
        _text(device.name),
        _text(device.board),
        f"<span class='{device.state}'>{device.state}</span>",
        _text(duration(max(now - device.since, 0))),
        _text(who),
        "" if device.load is None else f"{device.load:.2f}",
        "" if device.temperature is None else f"{device.temperature:.0f}",
        str(device.sessions),
        _text(why),
    )


def results_page(histories: Sequence[History]) -> str:
    parts = []
    for history in histories:
        title = f"{history.model} on {history.device} ({history.board})"
        rows = [
            (
                f"<a href='/compare?before={_text(before.id)}&amp;after={_text(run.id)}'>"
                f"{_text(run.id[:_SHORT])}</a>"
                if before is not None
                else _text(run.id[:_SHORT]),
                _text(run.measured_at[:16].replace("T", " ")),
                _text(", ".join(run.build.offload) or "none"),
                _amount(run, run.median),
                _amount(run, run.p90),
                str(run.conditions.threads),
                _text(run.purpose),
            )
            for before, run in zip((None, *history.runs), history.runs, strict=False)
        ]
        parts.append(
            f"<h2>{_text(title)}</h2>{_curve(history.runs)}"
            + _table(
                ("run", "when", "offload", "median", "p90", "threads", "for"),
                list(reversed(rows)),
                numbers=(3, 4, 5),
            )
        )
    return _page("Results", "".join(parts) or "<p>Nothing was measured yet.</p>")


def comparison_page(comparison: Comparison) -> str:
    before, after = comparison.before, comparison.after
    rows = [
        (
            title,
            _text(run.id[:_SHORT]),
            _text(run.measured_at[:16].replace("T", " ")),
            _amount(run, run.median),
            _amount(run, run.p90),
            _text(", ".join(run.build.offload) or "none"),
        )
        for title, run in (("before", before), ("after", after))
    ]
    notes = [f"not comparable: {text}" for text in comparison.obstacles] + list(comparison.remarks)
    body = (
        f"<h2>{_text(after.build.model)} on {_text(after.device)}: {comparison.verdict}</h2>"
        + _table(("", "run", "when", "median", "p90", "offload"), rows, numbers=(3, 4))
        + f"<p>after / before: {comparison.ratio:.3f}, between {comparison.low:.3f} and "
        f"{comparison.high:.3f} in 95 of 100 cases</p>"
        + "".join(f"<p>{_text(note)}</p>" for note in notes)
    )
    return _page("Comparison", body)


def error_page(message: str) -> str:
    return _page("edgekit", f"<p>{_text(message)}</p>")


def _page(title: str, body: str, *, script: bool = False) -> str:
    tag = "<script src='/script.js' defer></script>" if script else ""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>edgekit: {_text(title)}</title><link rel='stylesheet' href='/style.css'>{tag}"
        f"</head><body><nav><a href='/'>Farm</a><a href='/results'>Results</a></nav>"
        f"<h1>{_text(title)}</h1>{body}</body></html>"
    )


def style_sheet() -> str:
    return _STYLE


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: tuple[int, ...] = ()
) -> str:
    """Cells are HTML already; heads are ours."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if place in numbers else ''}>{cell}</{tag}>"
            for place, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>"


def _curve(runs: Sequence[BenchRun]) -> str:
    """Medians over time, from zero."""
    if len(runs) < 2:
        return ""
    width, height = 600, 80
    top = max(run.median for run in runs) or 1.0
    points = [
        f"{place * width / (len(runs) - 1):.1f} {height - run.median / top * (height - 4):.1f}"
        for place, run in enumerate(runs)
    ]
    return (
        f"<svg viewBox='0 0 {width} {height}' width='{width}' height='{height}' role='img' "
        f"aria-label='medians of {len(runs)} runs'><path d='M{' L'.join(points)}'/></svg>"
    )


def _amount(run: BenchRun, value: float) -> str:
    return milliseconds(value) if run.unit == "seconds" else f"{value:.0f} {_text(run.unit)}"


def _text(text: str) -> str:
    return html.escape(text, quote=True)
