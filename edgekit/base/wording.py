"""Formats numbers and names for people."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

PURPOSE = "EDGEKIT_PURPOSE"
"""The variable that names the edgekit command that a process works for."""


def duration(seconds: float) -> str:
    """Format seconds: 0.4 ms, 12 ms, 3.2 s, 2 min 5 s."""
    if seconds < 0.01:
        return f"{seconds * 1000:.2g} ms" if seconds > 0 else "0 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def milliseconds(seconds: float) -> str:
    """Format latencies in one unit to compare them: 0.01968 ms, 14.25 ms, 11510 ms."""
    value = seconds * 1000
    return f"{value:.4g} ms" if value < 9999.5 else f"{value:.0f} ms"


def size(count: int) -> str:
    """Format bytes: 1 B, 14.2 KiB, 3.4 MiB."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1023.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def amount(count: int) -> str:
    """Format a count of parameters or multiply-accumulates: 950, 3.50 M, 1.20 G."""
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= limit:
            return f"{count / limit:.2f} {unit}"
    return str(count)


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the most similar choice, if any is similar; of two equally similar, the first."""
    matcher = difflib.SequenceMatcher()
    matcher.set_seq2(word.lower())
    best, best_ratio = None, 0.6
    for choice in choices:
        matcher.set_seq1(choice.lower())
        ratio = matcher.ratio()
        if ratio > best_ratio or (ratio == best_ratio and best is None):
            best, best_ratio = choice, ratio
    return best


def did_you_mean(word: str, choices: Iterable[str], otherwise: str) -> str:
    """Return a hint with the most similar choice, or `otherwise`."""
    near = nearest(word, choices)
    return f"did you mean {near}?" if near else otherwise


def printable(text: str) -> str:
    """Return text of a file or a board with a terminal's control characters made visible."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1]
        for letter in text
    )
