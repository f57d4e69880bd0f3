"""Orders the options and words the verdict."""

from __future__ import annotations

from edgekit.advice.memory import Fit
from edgekit.advice.words import Advice, Considered, Option
from edgekit.base.options import option
from edgekit.base.wording import number, percent

MUCH = 0.5
"""The share of the multiply-accumulates from which a library is tried first."""
_ACCURACY = "; its accuracy has to be measured on your own samples"


def advice_of(seen: Considered, fit: Fit) -> Advice:
    ordered = tuple(sorted(seen.options, key=lambda option: _place(option, fit.whole)))
    verdict = _verdict(ordered) if fit.whole else _too_large(ordered, fit.in_int8)
    board = seen.board
    return Advice(board.name, board.title, fit.whole, fit.in_int8, fit.words, ordered, verdict)


def _place(option: Option, fits: bool) -> tuple[int, float]:
    """Return the sort key: options measured on hardware by speed, then the most promising."""
    if not option.supported:
        return (9, 0.0)
    if not fits:
        return (0 if option.kind == "int8" else 5, 0.0)
    if option.known is not None and option.known.ranks:
        return (1, option.known.median)
    if option.kind == "library":
        coverage = option.coverage or 0.0
        return (2 if coverage >= MUCH else 5, -coverage)
    return ({"kernels": 3, "tuned": 4}.get(option.kind, 6), 0.0)


def _too_large(options: tuple[Option, ...], fits_in_int8: bool) -> str:
    int8 = any(option.kind == "int8" for option in options)
    if int8 and fits_in_int8:
        return "too large as it is; in int8 it may fit"
    even = ", even in int8" if int8 else ""
    return f"too large{even}: a smaller model, or a larger board"


def _verdict(options: tuple[Option, ...]) -> str:
    supported = [option for option in options if option.supported]
    if not supported:
        return "edgekit can't run it on this board"
    first = supported[0]
    measured = [o for o in supported if o.known is not None and o.known.ranks]
    if len(measured) > 1:
        slower = measured[1]
        assert first.known is not None and slower.known is not None
        ratio = slower.known.median / first.known.median if first.known.median else 1.0
        caution = _ACCURACY if first.kind == "int8" else ""
        return f"{first.name}: measured {number(ratio)} times as fast as {slower.name}{caution}"
    if measured and first.known is not None:
        untried = [o.name for o in supported if o not in measured and o.kind != "int8"]
        more = f"; not measured yet: {', '.join(untried)}" if untried else ""
        return f"{first.name} is what was measured{more}"
    is_known = any(option.known is not None for option in supported)
    where = " on the board itself" if is_known else ""
    decides = f"{option('measure')}{where} decides"
    if first.kind == "library":
        share = (
            "" if first.coverage is None else f", it takes {percent(first.coverage)} of the work"
        )
        return f"try {first.name} first{share}; {decides}"
    return f"try {first.name} first; {decides}"
