"""The frame of the farm's pages. Tables need no script; a script keeps them up to date."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgekit.base.quoting import html_text

STYLE = """
.free, .busy, .running, .done { color: var(--c2) }
.lost, .quarantined, .failed, .interrupted { color: var(--hit) }
.mute { color: var(--mute) }
.scroll { max-height: none; margin: .5rem 0 1.5rem }
td button { margin: 0 .3rem .3rem 0; padding: .1rem .6rem; min-height: 2rem }
@media (max-width: 40rem) {
  .scroll { border: 0 }
  thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden }
  tbody, tr, td { display: block }
  tr { border: 1px solid var(--line); border-radius: .4rem; margin-bottom: .75rem }
  td { display: flex; gap: 1rem; justify-content: space-between; max-width: none; border: 0 }
  td, td.n { text-align: right; white-space: normal; overflow-wrap: anywhere }
  td::before { content: attr(data-name); color: var(--mute); text-align: left; flex: none }
  td:empty { display: none }
}
"""
SCRIPT = """
'use strict';
const part = document.querySelector('[data-from]');
const say = (words) => { document.getElementById('live').textContent = words; };
let shown = '';
const again = async () => {
  try {
    const answer = await fetch(part.dataset.from, {credentials: 'same-origin'});
    const text = await answer.text();
    say(answer.ok ? 'live' : 'the farm does not answer');
    if (!answer.ok || text === shown) return;
    const held = document.activeElement?.dataset.post;
    const all = (what) => [...part.querySelectorAll(what)];
    const lefts = all('.scroll').map((one) => one.scrollLeft);
    part.innerHTML = text;
    shown = text;
    all('.scroll').forEach((one, place) => { one.scrollLeft = lefts[place] ?? 0; });
    all('[data-post]').find((one) => one.dataset.post === held)?.focus();
    if (all('.chart').length) drawAll();
  } catch { say('no connection'); }
};
if (part) setInterval(again, 2000);
document.addEventListener('click', async (event) => {
  const button = event.target.closest('[data-post]');
  if (!button) return;
  button.disabled = true;
  const answer = await fetch(button.dataset.post, {method: 'POST', credentials: 'same-origin'});
  const done = document.getElementById('done');
  done.textContent = await answer.text();
  shown = '';
  await again();
});
"""
"""The script that updates the part with `data-from`, whose answers are escaped HTML, and sends what
buttons ask for."""


def whole_page(title: str, body: str, *, live: bool = False, pictures: bool = False) -> str:
    tags = "<script src='/pictures.js' defer></script>" if pictures else ""
    tags += "<script src='/script.js' defer></script>" if live else ""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>edgekit: {html_text(title)}</title><link rel='stylesheet' href='/style.css'>{tags}"
        f"</head><body><header><h1>{html_text(title)}</h1></header>"
        "<nav aria-label='Pages'><a href='/'>Farm</a><a href='/tuning'>Tuning</a>"
        f"<a href='/results'>Results</a></nav><main>{body}</main></body></html>"
    )


def live_part(source: str, body: str) -> str:
    """Wrap a part that the script updates from `source`."""
    return f"<div data-from='{source}'>{body}</div>"


LIVE_WORD = "<span id='live' class='mute'></span>"
"""The place for the script's state."""


def button(words: str, name: str, address: str) -> str:
    """Write a button that sends a request; `name` says to screen readers what it is about."""
    label = html_text(f"{words} {name}")
    return (
        f"<button type='button' data-post='{html_text(address)}' aria-label='{label}'>"
        f"{html_text(words)}</button>"
    )


def table(
    label: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: tuple[int, ...] = (),
) -> str:
    """Write a table, whose rows are cards on a phone; cells are HTML, heads and label are not.

    Roles are written out, because browsers forget those of a table that is laid out as cards.
    """
    kinds = [" class=n" if place in numbers else "" for place in range(len(heads))]
    names = [html_text(head) for head in heads]
    head = "".join(
        f"<th role='columnheader' scope='col'{kind}>{name}</th>"
        for name, kind in zip(names, kinds, strict=True)
    )
    body = "".join(
        "<tr role='row'>"
        + "".join(
            f"<td role='cell' data-name='{name}'{kind}>{cell}</td>"
            for name, kind, cell in zip(names, kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f"<div class='scroll' role='region' tabindex='0' aria-label='{html_text(label)}'>"
        f"<table role='table'><thead role='rowgroup'><tr role='row'>{head}</tr></thead>"
        f"<tbody role='rowgroup'>{body}</tbody></table></div>"
    )
