"""Draws SVG: elements with quoted texts, and texts that fit."""

from __future__ import annotations

from edgekit.base.quoting import html_text

Value = str | float
CHARACTER = 6.4
"""The width of an average letter of the sans-serif font at 12 pixels."""


def element(name: str, *inside: str, **attributes: Value) -> str:
    """Return an element. `inside` is SVG; an attribute's `_` becomes `-`, as in `stroke_width`.

    `class_` is spelled so because the plain word is Python's.
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value != ""
    )
    return f"<{name}{words}>{''.join(inside)}</{name}>" if inside else f"<{name}{words}/>"


def text(x: float, y: float, words: str, **attributes: Value) -> str:
    """Return a line of text with its baseline at `y`."""
    return element("text", html_text(words), x=x, y=y, **attributes)


def rectangle(x: float, y: float, width: float, height: float, **attributes: Value) -> str:
    return element("rect", x=x, y=y, width=width, height=height, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: Value) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def with_tooltip(words: str, *inside: str) -> str:
    """Group elements that show `words` under the pointer."""
    return element("g", element("title", html_text(words)), *inside)


def picture(width: float, height: float, *inside: str, **attributes: Value) -> str:
    """Return a whole SVG, for a file or inside HTML."""
    box = f"0 0 {_value(width)} {_value(height)}"
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}", "viewBox": box}
    head = {"xmlns": "http://www.w3.org/2000/svg", **size}
    return element("svg", "\n", "\n".join(inside), "\n", **{**head, **attributes})


def fitting(words: str, width: float, character: float = CHARACTER) -> str:
    """Return as much of a text as fits; nothing rather than a letter or two."""
    letters = int(width / character)
    if len(words) <= letters:
        return words
    return f"{words[: letters - 1]}…" if letters >= 4 else ""


def _value(value: Value) -> str:
    if isinstance(value, str):
        return html_text(value)
    return f"{value:.1f}".removesuffix(".0")
