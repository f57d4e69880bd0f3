"""The parts of the farm's pages. Tables need no script; a script keeps them up to date."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgekit.base.quoting import html_text

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7d3b; --bad: #b3261e; --mute: #777 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.free, .busy, .running { color: var(--good) }
.lost, .quarantined, .failed, .interrupted { color: var(--bad) }
.mute { color: var(--mute) } nav a { margin-right: 1rem } h1 { font-size: 1.3rem }
h2 { font-size: 1.05rem }
svg { max-width: 100% } svg path { fill: none; stroke: currentColor; stroke-width: 1.5 }
svg path.own { stroke: var(--mute); stroke-dasharray: 4 4 }
"""
SCRIPT = """
'use strict';
const part = document.querySelector('[data-from]');
const again = async () => {
  try {
    const answer = await fetch(part.dataset.from, {credentials: 'same-origin'});
    if (answer.ok) part.innerHTML = await answer.text();
    document.getElementById('live').textContent = answer.ok ? 'live' : 'the farm does not answer';
  } catch { document.getElementById('live').textContent = 'no connection'; }
};
setInterval(again, 2000);
"""
"""The script that updates the part with `data-from`, whose answers are escaped HTML."""


def whole_page(title: str, body: str, *, live: bool = False) -> str:
    tag = "<script src='/script.js' defer></script>" if live else ""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>edgekit: {html_text(title)}</title><link rel='stylesheet' href='/style.css'>{tag}"
        "</head><body><nav><a href='/'>Farm</a><a href='/tuning'>Tuning</a>"
        "<a href='/results'>Results</a></nav>"
        f"<h1>{html_text(title)}</h1>{body}</body></html>"
    )


def live_part(source: str, body: str) -> str:
    """Wrap a part that the script updates from `source`."""
    return f"<div data-from='{source}'>{body}</div>"


LIVE_WORD = "<span id='live' class='mute'></span>"
"""The place for the script's state."""


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: tuple[int, ...] = ()
) -> str:
    """Write a table; heads and cells are HTML."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if place in numbers else ''}>{cell}</{tag}>"
            for place, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>"
