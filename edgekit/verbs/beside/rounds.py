"""Alternating rounds: each contender has a turn in each, so that a busy machine slows all alike."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.base.errors import EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.verbs.beside.contender import Contender, Turn

ROUNDS = 5
_SHORTEST_TURN = 0.1


@dataclass(frozen=True)
class Ratio:
    """A time as a multiple of another one's in the same rounds."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Rounds:
    """The turns of each contender that took all of its turns, and the errors of the others."""

    turns: Mapping[str, Sequence[Turn]]
    errors: Mapping[str, EdgekitError]

    def ratio(self, name: str, base: str) -> Ratio:
        of_round = [
            mine.median / its.median
            for mine, its in zip(self.turns[name], self.turns[base], strict=True)
        ]
        return Ratio(statistics.median(of_round), min(of_round), max(of_round))


def alternating(
    contenders: Mapping[str, Contender], seconds: float, events: Events = SILENT
) -> Rounds:
    """Measure for so many seconds each, in turns; every second round runs backwards."""
    turns: dict[str, list[Turn]] = {name: [] for name in contenders}
    errors: dict[str, EdgekitError] = {}
    each = max(seconds / ROUNDS, _SHORTEST_TURN)
    with events.stage("alternate", ROUNDS * len(contenders)) as stage:
        for number in range(ROUNDS):
            for name in list(turns)[:: -1 if number % 2 else 1]:
                try:
                    turns[name].append(contenders[name].turn(each))
                except EdgekitError as error:
                    errors[name] = error
                    del turns[name]
                stage.advance(1, name)
    return Rounds(turns, errors)
