"""Writes docs/terminal.svg from a tested tutorial: python docs/make_terminal.py"""

from __future__ import annotations

import re
from pathlib import Path

from edgekit.base.svg import element, picture, rectangle, text

DOCS = Path(__file__).parent
TARGET = DOCS / "terminal.svg"
PAGE = DOCS / "tutorials" / "first-board.md"
SECTION = "## Deploy it to this host"
COLUMNS = 95
LINE, LETTER, MARGIN = 19, 7.8, 16


def terminal() -> str:
    """Return the picture of what a section of the tutorial types and prints."""
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    lines = [line for line in "".join(blocks).splitlines() if line != "…"]
    width, height = COLUMNS * LETTER + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    shown = (
        text(
            MARGIN,
            MARGIN + (number + 0.75) * LINE,
            line[:COLUMNS],
            fill="#8ae234" if line.startswith("$ ") else "#eeeeec",
        )
        for number, line in enumerate(lines)
    )
    style = {"font_family": "monospace", "font_size": 13, "xml:space": "preserve"}
    ground = rectangle(0, 0, width, height, fill="#2e3436", rx=6)
    return picture(width, height, ground, element("g", *shown, **style)) + "\n"


if __name__ == "__main__":
    TARGET.write_text(terminal(), encoding="utf-8")
