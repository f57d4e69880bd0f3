"""Further parameters of a rule, near the best ones so far."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from edgekit.compiler.schedules.choices import (
    Choice,
    DepthwiseChoice,
    GenericChoice,
    ProductChoice,
    TraceChoice,
)

_VALUES: dict[str, tuple[object, ...]] = {
    "unrolled": (1, 2, 4, 8, 16),
    "lines_at_once": (1, 2, 4, 8, 16, 32),
    "panels_outside": (None, False, True),
    "steps_apart": (False, True),
    "pixels": (None, 1, 2, 3, 4, 6, 7, 8),
    "lanes": (None, 4, 8, 16, 32, 64),
}
"""The values of each field for any kernel; the compiler refuses those that do not fit."""
_ONE_OF = 3


def neighbours(best: Sequence[Choice], candidates: Sequence[Choice], seed: int) -> Iterator[Choice]:
    """Yield choices near the best ones, the best first, each once.

    Values of `candidates`, the likely choices, are tried in other combinations too.
    """
    chance = random.Random(seed)
    seen: set[Choice] = set()
    for middle in best:
        if isinstance(middle, TraceChoice):
            continue
        steps = [*_steps(middle, candidates), *_leaps(middle, candidates, chance)]
        for step in steps:
            if step not in seen:
                seen.add(step)
                yield step


def together(better: Sequence[Choice]) -> list[Choice]:
    """Return the combination of all improvements of a product, the best where they conflict."""
    products = [choice for choice in better if isinstance(choice, ProductChoice)]
    own, combined = ProductChoice(), ProductChoice()
    for choice in reversed(products):
        changed = {name: v for name, v in vars(choice).items() if v != getattr(own, name)}
        combined = replace(combined, **changed)
    return [combined] if len(products) > 1 else []


def _steps(middle: Choice, candidates: Sequence[Choice]) -> Iterator[Choice]:
    """Yield choices with one field changed."""
    for item in fields(middle):
        for value in _values(item.name, middle, candidates):
            if value != getattr(middle, item.name):
                yield replace(middle, **{item.name: value})


def _leaps(middle: Choice, candidates: Sequence[Choice], chance: random.Random) -> Iterator[Choice]:
    """Yield a random third of the choices with two fields changed."""
    found: list[Choice] = []
    names = [item.name for item in fields(middle)]
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            for one in _values(first, middle, candidates):
                for other in _values(second, middle, candidates):
                    changed = replace(middle, **{first: one, second: other})
                    if changed != middle:
                        found.append(changed)
    chance.shuffle(found)
    yield from found[: max(len(found) // _ONE_OF, 1)]


def _values(name: str, middle: Choice, candidates: Sequence[Choice]) -> list[Any]:
    """Return a field's values in the likely choices, and its other values."""
    alike = [choice for choice in candidates if type(choice) is type(middle)]
    likely = [getattr(choice, name) for choice in (middle, *alike)]
    return list(dict.fromkeys([*likely, *_VALUES.get(name, ())]))


PARAMETERS = (ProductChoice, DepthwiseChoice, GenericChoice)
"""The choice types with parameters of a rule."""
