"""The manifest's entries for reference vectors: inputs and expected outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.base.wording import counted
from edgekit.models.comparison import Leeway

RANDOM = "random"
"""The name of the usual vector, which every bundle holds first."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""The form of a vector's name, which is also the name of a folder."""


@dataclass(frozen=True)
class ExpectedEntry:
    file: str
    """The path of the oracle's output inside the bundle."""
    leeway: Leeway | None
    """The extra tolerance beyond the rule of its type, measured when the bundle was built."""


@dataclass(frozen=True)
class VectorEntry:
    name: str
    inputs: tuple[str, ...]
    """Paths inside the bundle, in the order of the model's inputs."""
    outputs: tuple[ExpectedEntry, ...]
    """The outputs in the model's order; empty without an oracle."""


@dataclass(frozen=True)
class LeftOut:
    """A vector that was not made or not run, and the reason."""

    name: str
    reason: str


def vectors_in_words(vectors: Sequence[VectorEntry]) -> str:
    return ", ".join(vector.name for vector in vectors)


def vectors_problem(vectors: Sequence[VectorEntry], inputs: int, outputs: int) -> str | None:
    """Say what is wrong with the vectors of a model with so many inputs and expected outputs."""
    if not vectors:
        return "holds no reference vector"
    names = [vector.name for vector in vectors]
    if len(set(names)) != len(names):
        return "has two reference vectors of one name"
    for vector in vectors:
        if not _NAME.fullmatch(vector.name):
            return f"has a reference vector of the name {vector.name[:40]!a}"
        if len(vector.inputs) != inputs:
            return f"must list {counted(inputs, 'input file')} for the vector {vector.name[:40]!a}"
        if len(vector.outputs) != outputs:
            return (
                "must list expected outputs just where it names an oracle: "
                f"{outputs} for the vector {vector.name[:40]!a}"
            )
    return None
