"""Alternating rounds: the order of turns, ratios of one round, and who fails."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from edgekit.base.errors import ModelError
from edgekit.verbs.beside.contender import Turn
from edgekit.verbs.beside.rounds import ROUNDS, alternating


@dataclass
class Scripted:
    """A contender whose turns last as long as the machine is slow in that round."""

    name: str
    order: list[str]
    milliseconds: float
    fails_in: int | None = None
    turns: int = field(default=0, init=False)

    def turn(self, seconds: float) -> Turn:
        self.order.append(self.name)
        self.turns += 1
        if self.turns == self.fails_in:
            raise ModelError("it broke", hint="none")
        slow = 10 if self.turns == 3 else 1
        return Turn((int(self.milliseconds * slow * 1e6),))


def test_a_round_in_which_the_machine_is_slow_changes_no_ratio() -> None:
    order: list[str] = []
    rounds = alternating({"a": Scripted("a", order, 2), "b": Scripted("b", order, 6)}, 1.0)
    ratio = rounds.ratio("b", "a")
    assert (ratio.lowest, ratio.median, ratio.highest) == pytest.approx((3, 3, 3))
    assert order[:4] == ["a", "b", "b", "a"]
    assert len(order) == 2 * ROUNDS


def test_what_fails_takes_no_further_turn_and_stops_no_other() -> None:
    order: list[str] = []
    broken = Scripted("a", order, 1, fails_in=2)
    rounds = alternating({"a": broken, "b": Scripted("b", order, 1)}, 1.0)
    assert set(rounds.turns) == {"b"}
    assert rounds.errors["a"].message == "it broke"
    assert order.count("a") == 2
