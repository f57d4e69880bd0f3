"""How many random cases a property is tried with: some in `make test`, all in `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

THOROUGH = os.environ.get("EDGEKIT_THOROUGH") == "1"


def examples(count: int) -> int:
    """The first third of `count` examples, or all of them. They are drawn in the same order."""
    return count if THOROUGH else max(count // 3, 3)


def first_of(*values: Any) -> list[Any]:
    """Parameters of which `make test` takes the first, and `make test-all` the others too."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.slow) for value in values[1:])]


def a_third_of(values: Iterable[Any]) -> list[Any]:
    """Parameters of which `make test` takes every third, and `make test-all` the others too."""
    return [
        value if number % 3 == 0 else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]
