"""Who is asked before the files of a project are used. A command line with a person in front of it
says so; the library asks nobody."""

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
    """As JSON spells it."""
    meaning: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.meaning}"


@dataclass(frozen=True)
class TrustedFile:
    """A file of a project, and whether its user agreed to what it does."""

    path: Path
    effects: tuple[Effect, ...]
    trusted: bool


Ask = Callable[[Sequence[TrustedFile]], bool]
"""Shows files that are not trusted to a person. True where the person trusts them."""

_askers: list[Ask] = []


@contextmanager
def asking(ask: Ask) -> Iterator[None]:
    """Have a person asked while the block runs."""
    _askers.append(ask)
    try:
        yield
    finally:
        _askers.remove(ask)


def is_agreed_to(files: Sequence[TrustedFile]) -> bool:
    """Ask the person, if there is one."""
    return bool(_askers) and _askers[-1](files)
