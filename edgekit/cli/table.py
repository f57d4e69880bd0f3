"""Rows of text in columns that fit a width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from edgekit.base.wording import joined, width

GAP = "  "
_LONG_WORD = 32
"""The length above which a word may be broken, unless it is a path."""
_LEAST_WIDTH = 16
_LAST_COLUMN = 24
"""The width to which a last column of long text gives way before columns are left out."""
KEPT_SPACE = "\ue000"
"""Stands for a space at which a text is not wrapped, such as one in a path."""
_SECOND_HALF = "\x00"
"""Stands for the second column of a wide letter while text is wrapped."""


@dataclass(frozen=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()
    """Columns of numbers, which are right-aligned and never wrapped."""
    spare: Sequence[str] = ()
    """Columns that a narrow table does without, the first one first."""

    def lines(self, room: int | None) -> tuple[list[str], list[str], list[str]]:
        """Return the header, the rows and the names of the columns that were left out.

        To fit into `room`, the text of the last column is wrapped, then spare columns are left
        out, then other text is wrapped, then columns are left out from the right. The last means
        is to break the words of the first column.
        """
        later = [name for name in reversed(self.columns[1:]) if name not in self.spare]
        ways = [(self.spare[:count], True) for count in range(len(self.spare) + 1)]
        order = (*self.spare, *later)
        ways += [(order[:count], False) for count in range(len(order) + 1)]
        for left_out, whole in ways:
            table = self._without(left_out)
            widths = table._widths(room, whole=whole)
            if widths is not None:
                break
        else:
            assert room is not None
            table, widths = replace(table, right=()), [max(room, 2)]
        rows = [line for row in table.rows for line in table._aligned(row, widths)]
        missing = [name for name in self.columns if name in left_out]
        return table._aligned(table.columns, widths), rows, missing

    def _without(self, names: Sequence[str]) -> Table:
        kept = [place for place, name in enumerate(self.columns) if name not in names]
        rows = [[row[place] for place in kept] for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in kept], rows=rows)

    def _widths(self, room: int | None, *, whole: bool) -> list[int] | None:
        """Return widths that fit: narrow the last column first, then the widest.

        Return None if ordinary words would have to be broken, or with `whole` if any column but
        the last would be wrapped.
        """
        natural = [
            max([width(name), *(width(row[place]) for row in self.rows)])
            for place, name in enumerate(self.columns)
        ]
        if room is None:
            return natural
        widths = list(natural)
        too_much = sum(widths) + len(GAP) * (len(widths) - 1) - room
        least = [self._least_width(place, own) for place, own in enumerate(natural)]
        yielded = max(0, min(too_much, widths[-1] - max(least[-1], _LAST_COLUMN)))
        widths[-1] -= yielded
        for _ in range(too_much - yielded):
            slack = [place for place, own in enumerate(widths) if own > least[place]]
            if whole or not slack:
                return None
            widths[max(slack, key=lambda place: widths[place])] -= 1
        return widths

    def _least_width(self, place: int, natural: int) -> int:
        if self.columns[place] in self.right:
            return natural
        words = [word for row in self.rows for word in row[place].split()]
        name = width(self.columns[place])
        longest = min(max([name, *map(width, words)]), max(name, _LONG_WORD))
        if place == len(self.columns) - 1:
            return min(longest, max(name, _LEAST_WIDTH))
        return max([longest, *(width(word) for word in words if _is_path(word))])

    def _aligned(self, row: Sequence[str], widths: Sequence[int]) -> list[str]:
        pieces = zip_longest(*map(wrapped, row, widths), fillvalue="")
        return [self._line(cells, widths) for cells in pieces]

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        padded = [
            f"{' ' * (own - width(cell))}{cell}"
            if name in self.right
            else f"{cell}{' ' * (own - width(cell))}"
            for cell, name, own in zip(cells, self.columns, widths, strict=True)
        ]
        return GAP.join(padded).rstrip().replace(KEPT_SPACE, " ")


def left_out_note(names: Sequence[str]) -> str:
    """Say which columns a narrow table does without."""
    those = "is" if len(names) == 1 else "are"
    return f"({joined(names)} {those} left out: the terminal is narrow)"


def _is_path(word: str) -> bool:
    return "/" in word or KEPT_SPACE in word


def wrapped(text: str, room: int, *, break_words: bool = True) -> list[str]:
    """Wrap text to a number of columns of a terminal. A path stays whole, to be copied."""
    if width(text) <= room:
        return [text]
    doubled = "".join(letter + _SECOND_HALF * (width(letter) - 1) for letter in text)
    lines: list[str] = []
    for line in textwrap.wrap(doubled, room, break_long_words=False, break_on_hyphens=False):
        is_whole = not break_words or _is_path(line)
        lines += [line] if is_whole else textwrap.wrap(line, room, break_on_hyphens=False)
    return [line.replace(_SECOND_HALF, "") for line in lines] or [""]
