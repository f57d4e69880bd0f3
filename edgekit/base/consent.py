"""Asks the user before files of a project are used. Only an interactive command line asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Effect:
    """A key of a file that makes edgekit run or send something."""

    key: str
    value: str
    """The value as JSON."""
    meaning: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.meaning}"


@dataclass(frozen=True)
class TrustedFile:
    """A file of a project, and whether its user agreed to its effects."""

    path: Path
    effects: tuple[Effect, ...]
    trusted: bool


Ask = Callable[[Sequence[TrustedFile]], bool]
"""A function that shows untrusted files to a person. It returns whether the person trusts them."""

_askers: list[Ask] = []


@contextmanager
def asking(ask: Ask) -> Iterator[None]:
    """Use `ask` to ask a person while the block runs."""
    _askers.append(ask)
    try:
        yield
    finally:
        _askers.remove(ask)


def is_agreed_to(files: Sequence[TrustedFile]) -> bool:
    """Return whether the person agrees; False if no person can be asked."""
    return bool(_askers) and _askers[-1](files)
