"""Rows of text in columns that fit a width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

GAP = "  "
_LONG_WORD = 16
"""The length above which a word, such as a path, may be broken."""


@dataclass(frozen=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()
    """Columns of numbers, which are right-aligned and never wrapped."""

    def lines(self, room: int | None) -> tuple[list[str], list[str]]:
        """Return the header and the rows, wrapped to `room`.

        If even that is too wide, there is no header and a row's cells stand one below the other.
        """
        natural = self._natural_widths()
        widths = natural if room is None else self._narrowed(natural, room)
        if widths is None:
            assert room is not None
            return [], list(self._as_fields(room))
        rows = [line for row in self.rows for line in self._aligned(row, widths)]
        return self._aligned(self.columns, widths), rows

    def _natural_widths(self) -> list[int]:
        return [
            max([len(name), *(len(row[place]) for row in self.rows)])
            for place, name in enumerate(self.columns)
        ]

    def _narrowed(self, natural: Sequence[int], room: int) -> list[int] | None:
        """Return widths that fit: narrow the last column first, then the widest.

        Return None if ordinary words would have to be broken.
        """
        widths = list(natural)
        too_much = sum(widths) + len(GAP) * (len(widths) - 1) - room
        least = [self._least_width(place, width) for place, width in enumerate(natural)]
        yielded = max(0, min(too_much, widths[-1] - max(least[-1], _LONG_WORD)))
        widths[-1] -= yielded
        for _ in range(too_much - yielded):
            slack = [place for place, width in enumerate(widths) if width > least[place]]
            if not slack:
                return None
            widths[max(slack, key=lambda place: widths[place])] -= 1
        return widths

    def _least_width(self, place: int, natural: int) -> int:
        if self.columns[place] in self.right:
            return natural
        words = [word for row in self.rows for word in row[place].split()]
        longest = max([len(self.columns[place]), *map(len, words)])
        return min(longest, max(len(self.columns[place]), _LONG_WORD))

    def _aligned(self, row: Sequence[str], widths: Sequence[int]) -> list[str]:
        pieces = zip_longest(*map(_wrapped, row, widths), fillvalue="")
        return [self._line(cells, widths) for cells in pieces]

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        padded = [
            cell.rjust(width) if name in self.right else cell.ljust(width)
            for cell, name, width in zip(cells, self.columns, widths, strict=True)
        ]
        return GAP.join(padded).rstrip()

    def _as_fields(self, room: int) -> Iterator[str]:
        label = max(map(len, self.columns))
        for position, row in enumerate(self.rows):
            if position:
                yield ""
            for name, cell in zip(self.columns, row, strict=True):
                pieces = _wrapped(cell, max(room - label - len(GAP), _LONG_WORD // 2))
                for number, piece in enumerate(pieces):
                    shown = name if number == 0 else ""
                    yield f"{shown.ljust(label)}{GAP}{piece}".rstrip()


def _wrapped(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width) or [""]
