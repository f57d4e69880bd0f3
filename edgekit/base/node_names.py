"""Names variables after their node in the model file: `NODE__NUMBER`."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONGEST_LABEL = 200
"""The most characters of a name; a file may hold any."""
_SEPARATOR = "\x1f"
_NAMED = re.compile(r"(?P<node>.+)__(?P<number>[0-9]+)", re.DOTALL)


def named_after(variable_name: str) -> str:
    """Return the node that a variable came from; empty if unknown."""
    named = _NAMED.fullmatch(variable_name)
    return named["node"] if named else ""


def numbering(variable_name: str) -> int:
    """Return the number behind a node's name; 0 without one."""
    named = _NAMED.fullmatch(variable_name)
    return int(named["number"]) if named else 0


def numbered(node: str, number: int) -> str:
    """Return a variable's name with its node and number."""
    return f"{node[:_LONGEST_LABEL]}__{number}"


def joined(nodes: Sequence[str], number: int) -> str:
    """Return a variable's name with all nodes that it computes, which `nodes_of` reads."""
    return f"{_SEPARATOR.join(nodes)}__{number}"


def nodes_of(variable_name: str) -> tuple[str, ...]:
    """Return the nodes that a variable computes; none if unknown."""
    return tuple(node for node in named_after(variable_name).split(_SEPARATOR) if node)
