"""Sockets in the file system. The permissions of their folder decide who reaches them."""

from __future__ import annotations

import os
from pathlib import Path

_LONGEST_PATH = 100
"""The most bytes of a socket's path; Linux has room for 108."""


class reachable:  # noqa: N801 - used like a function
    """Gives a path that fits into a socket's address, however deep the folder is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: int | None = None

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) < _LONGEST_PATH:
            return str(self._path)
        self._folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder}/{self._path.name}"

    def __exit__(self, *error: object) -> None:
        if self._folder is not None:
            os.close(self._folder)
