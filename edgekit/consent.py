"""Who is asked before the files of a project are used. A command line with a person in front of it
says so; the library asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.trust import TrustedFile

Ask = Callable[["Sequence[TrustedFile]"], bool]
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
