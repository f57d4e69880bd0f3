"""The rules for libraries with plain tensors; if two rules match, the first wins."""

from __future__ import annotations

from dataclasses import replace

from edgekit.backends.base import Layer, Rule
from edgekit.backends.match import Match
from edgekit.backends.plain.rules import convolution, elementwise, movement, pooling, resize
from edgekit.backends.plain.rules.takes import Check, Takes

__all__ = ["Takes", "all_rules"]


def all_rules(takes: Takes) -> tuple[Rule, ...]:
    """Return the rules, longest patterns first: a convolution with its activation before either."""
    found = (
        *convolution.rules(takes),
        *pooling.rules(takes),
        *movement.rules(takes),
        *resize.rules(takes),
        *elementwise.rules(takes),
    )
    check = takes.check
    return found if check is None else tuple(_checked(rule, check) for rule in found)


def _checked(rule: Rule, check: Check) -> Rule:
    def take(match: Match) -> Layer:
        return check(match, rule.take(match))

    return replace(rule, take=take)
