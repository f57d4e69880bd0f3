"""The runner's C++ as one file, which bundles contain and devices may compile."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

_HERE = Path(__file__).parent
_FOLDERS = (_HERE / "runner", _HERE / "include")
_OWN = re.compile(r'^#include "(edgekit_\w+\.h)"$')
_ONCE = "#pragma once"


@lru_cache(maxsize=1)
def runner_source() -> str:
    return with_own_headers(_HERE / "runner" / "edgekit_tensorrt.cc")


def with_own_headers(file: Path) -> str:
    """Return a source with edgekit's own headers inlined, each at its first include."""
    return _with_headers(file, set())


def _with_headers(file: Path, seen: set[str]) -> str:
    lines: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        wanted = _OWN.match(line)
        if wanted is None:
            if line != _ONCE:
                lines.append(line)
        elif wanted[1] not in seen:
            seen.add(wanted[1])
            place = next(f for folder in _FOLDERS if (f := folder / wanted[1]).is_file())
            lines.append(_with_headers(place, seen).rstrip("\n"))
    return "\n".join(lines) + "\n"
