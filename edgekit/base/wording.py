"""Formats numbers and names for people. Every output and every message uses these functions."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence

PURPOSE = "EDGEKIT_PURPOSE"
"""The variable that names the edgekit command that a process works for."""

_SECOND_FRACTIONS = (("ns", 1e9), ("µs", 1e6), ("ms", 1e3), ("s", 1.0))
_POWERS_OF_TEN = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15))
_POWERS_OF_TWO = tuple(
    (unit, float(1 << 10 * power))
    for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
)


_DIGITS = re.compile(r"([0-9]+)")


def unique_name(wanted: str, taken: set[str]) -> str:
    """Return a name that is not taken, with a number if necessary, and take it."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def natural(name: object) -> tuple[tuple[str | int, ...], str]:
    """Return the key that sorts names as people count: img2 before img10."""
    text = str(name)
    # Every second part is a number.
    parts = enumerate(_DIGITS.split(text))
    return tuple(int(part) if place % 2 else part for place, part in parts), text


def duration(seconds: float) -> str:
    """Format a time: 37.5 ns, 4.20 µs, 14.3 ms, 3.21 s, 2 min 5 s, 1 h 2 min, 3 d 4 h."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 5e-13:
        return "0 s"
    if seconds < 59.95:
        for unit, factor in _SECOND_FRACTIONS:
            if seconds * factor < 999.5:
                return f"{number(seconds * factor)} {unit}"
    whole = round(seconds)
    if whole < 3600:
        return _two_units(whole, 60, "min", "s")
    if (whole := round(seconds / 60)) < 24 * 60:
        return _two_units(whole, 60, "h", "min")
    return _two_units(round(seconds / 3600), 24, "d", "h")


def microseconds(value: float | None) -> str | None:
    """Format a time that may be unknown, from microseconds."""
    return None if value is None else duration(value / 1e6)


def measured(value: float, unit: str) -> str:
    """Format a measurement: seconds as a time, anything else with its unit."""
    return duration(value) if unit == "seconds" else f"{round(value):,} {unit}"


def number(value: float) -> str:
    """Format a number with three significant digits: 0.0123, 1.50, 1,234. Whole ones stay whole.

    Numbers below 0.001 and from 10^15 on have a power of ten.
    """
    if not abs(value) < 1e15:
        return f"{value:.3g}"
    if value == round(value):
        return f"{value:,.0f}"
    if abs(value) < 0.000995:
        return f"{value:.3g}"
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{value:,.{max(0, 2 - exponent)}f}"


def size(count: int) -> str:
    """Format bytes: 1 B, 14.2 KiB, 320 KiB, 3.40 MiB."""
    return _scaled(count, _POWERS_OF_TWO, 1024)


def exact_size(count: int) -> str:
    """Format bytes to the last one, where they have to fit: 65,540 bytes."""
    return counted(count, "byte")


def amount(count: float) -> str:
    """Format a large count, such as one of multiply-accumulates: 950, 3.50 M, 301 M, 1.20 G."""
    return _scaled(count, _POWERS_OF_TEN, 1000).rstrip()


def counted(count: int, one: str, many: str = "") -> str:
    """Format a count of things: 1 region, 2 regions, 1,600 lines, 3 libraries."""
    return f"{count:,} {one if count == 1 else many or _plural(one)}"


def joined(words: Iterable[str]) -> str:
    """Join words as a sentence does: a, b and c."""
    *most, last = list(words) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def few(names: Sequence[str]) -> str:
    """List the first names, and say how many more there are."""
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def percent(part: float) -> str:
    """Format a share of a whole: 5.0 %, 99.9 %. Only all of it is 100 %."""
    if part == 1 or part == 0:
        return f"{part * 100:.0f} %"
    shown = min(part * 100, 99.9) if part < 1 else part * 100
    return f"{shown:.1f} %" if part >= 0.0005 else "under 0.1 %"


def multiple(value: float, low: float | None = None, high: float | None = None) -> str:
    """Format a ratio and its spread: 2.61x, 0.997x (0.985x to 1.010x)."""
    text = f"{value:.3f}x" if 0.9 < value < 1.1 else f"{number(value)}x"
    if low is None or high is None:
        return text
    return f"{text} ({multiple(low)} to {multiple(high)})"


def energy(joules: float) -> str:
    """Format an energy: 12.3 mJ, 1.20 J."""
    return f"{number(joules)} J" if joules >= 1 else f"{number(joules * 1e3)} mJ"


def clock_rate(hertz: float) -> str:
    """Format a clock: 168 MHz, 1,500 MHz, 32 kHz."""
    return f"{number(hertz / 1e6)} MHz" if hertz >= 1e6 else f"{number(hertz / 1e3)} kHz"


def celsius(degrees: float) -> str:
    return f"{degrees:.0f} °C"


def width(text: str) -> int:
    """Return the columns that a terminal takes for a text: Chinese letters take two."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _scaled(value: float, units: Iterable[tuple[str, float]], step: int) -> str:
    *below, (unit, factor) = units
    for lesser, its_factor in below:
        if value / its_factor < step - 0.5:
            unit, factor = lesser, its_factor
            break
    return f"{number(value / factor)} {unit}"


def _two_units(count: int, length: int, unit: str, lesser: str) -> str:
    whole, rest = divmod(count, length)
    return f"{whole:,} {unit} {rest} {lesser}" if rest else f"{whole:,} {unit}"


def _plural(word: str) -> str:
    """Return the plural of an English noun that has a regular one."""
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


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
