"""Names of variables that say which node of the model file they came from: `NODE__NUMBER`."""

from __future__ import annotations

import re

_LONGEST_LABEL = 200
"""Characters of a name; a file may hold any."""
_NAMED = re.compile(r"(?P<node>.+)__(?P<number>[0-9]+)", re.DOTALL)


def named_after(variable_name: str) -> str:
    """The node that a variable came from; empty where it is not known."""
    named = _NAMED.fullmatch(variable_name)
    return named["node"] if named else ""


def numbering(variable_name: str) -> int:
    """The number behind a node's name; 0 where there is none."""
    named = _NAMED.fullmatch(variable_name)
    return int(named["number"]) if named else 0


def numbered(node: str, number: int) -> str:
    """A variable's name that says what it came from."""
    return f"{node[:_LONGEST_LABEL]}__{number}"
