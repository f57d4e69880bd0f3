"""Which way each step of a model in C takes in which firmware: every firmware tries another way of
each step at once, and its steps are measured one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgekit.aot.ways import StepWays, Way

Assignment = Mapping[str, Way]
"""By the key of the step. Steps that are not in it are made their own way."""


@dataclass(frozen=True)
class Candidate:
    key: str
    way: Way


def candidates_of(
    steps: Sequence[StepWays], known: Mapping[str, frozenset[Way]]
) -> list[Candidate]:
    """Each way of each kind of step, alike steps once, without what was measured before."""
    found: dict[tuple[str, Way], Candidate] = {}
    for step in steps:
        for way in step.others:
            if way not in known.get(step.key, frozenset()):
                found.setdefault((step.key, way), Candidate(step.key, way))
    return list(found.values())


def rounds(candidates: Sequence[Candidate]) -> Iterator[Assignment]:
    """As few firmwares as there are ways of the step that has the most."""
    left: dict[str, list[Way]] = {}
    for candidate in candidates:
        left.setdefault(candidate.key, []).append(candidate.way)
    while left:
        yield {key: ways.pop(0) for key, ways in left.items()}
        left = {key: ways for key, ways in left.items() if ways}


def halves(assignment: Assignment) -> tuple[Assignment, Assignment]:
    """Of one that can't be built, or whose numbers are wrong: one of its halves is to blame."""
    keys = sorted(assignment)
    middle = len(keys) // 2
    return (
        {key: assignment[key] for key in keys[:middle]},
        {key: assignment[key] for key in keys[middle:]},
    )
