"""Plans the firmwares of a search: each tries another way of every step, measured step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgekit.aot.ways import StepWays, Way

Assignment = Mapping[str, Way]
"""Ways by the key of the step. Other steps take their own way."""


@dataclass(frozen=True)
class Candidate:
    key: str
    way: Way


def candidates_of(
    steps: Sequence[StepWays], known: Mapping[str, frozenset[Way]]
) -> list[Candidate]:
    """Return each way of each kind of step that was not measured before."""
    found: dict[tuple[str, Way], Candidate] = {}
    for step in steps:
        for way in step.others:
            if way not in known.get(step.key, frozenset()):
                found.setdefault((step.key, way), Candidate(step.key, way))
    return list(found.values())


def rounds(candidates: Sequence[Candidate]) -> Iterator[Assignment]:
    """Yield as many firmwares as the step with the most ways needs."""
    left: dict[str, list[Way]] = {}
    for candidate in candidates:
        left.setdefault(candidate.key, []).append(candidate.way)
    while left:
        yield {key: ways.pop(0) for key, ways in left.items()}
        left = {key: ways for key, ways in left.items() if ways}


def halves(assignment: Assignment) -> tuple[Assignment, Assignment]:
    """Split an assignment that failed, to find the way that is to blame."""
    keys = sorted(assignment)
    middle = len(keys) // 2
    return (
        {key: assignment[key] for key in keys[:middle]},
        {key: assignment[key] for key in keys[middle:]},
    )
