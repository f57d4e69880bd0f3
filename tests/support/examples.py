"""How many cases a test is tried with that differ in numbers alone: one or a third in every run,
all of them in `make test-varied`."""

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


def one_of(*values: Any) -> list[Any]:
    """Seeds, shapes and the like, of which the tests take the first, and `make test-varied` the
    others."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.varied) for value in values[1:])]


def a_third_of(values: Iterable[Any]) -> list[Any]:
    """Parameters of which the tests take every third, and `make test-varied` the others."""
    return [
        value if number % 3 == 0 else pytest.param(value, marks=pytest.mark.varied)
        for number, value in enumerate(values)
    ]
