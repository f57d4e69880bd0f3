"""Parameters and variables that a C function never reads: named once, so that compilers do not warn
of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_DECLARATION = re.compile(
    r"\s*(?:const )?\w+ \*?(?P<variables>\w+(?:\[\d+\])?(?:, \w+)*)(?: = .*)?;"
)
_NO_TYPES = ("return", "goto", "else")


def with_unread_named(parameters: Sequence[str], lines: Iterable[str]) -> list[str]:
    """Return a body's lines with `(void)NAME;` for each parameter and variable that none reads."""
    body = list(lines)
    found = [f"    (void){name};" for name in parameters if not _is_read(name, body)]
    for line in body:
        found.append(line)
        indent = line[: len(line) - len(line.lstrip())]
        found += [f"{indent}(void){name};" for name in _declared(line) if not _is_read(name, body)]
    return found


def _declared(line: str) -> Iterator[str]:
    match = _DECLARATION.fullmatch(line)
    if match is not None and line.split()[0] not in _NO_TYPES:
        for variable in match["variables"].split(", "):
            yield variable.partition("[")[0]


def _is_read(name: str, lines: Sequence[str]) -> bool:
    """Return whether a line has the name anywhere but where it is declared or assigned to."""
    word = re.compile(rf"\b{name}\b")
    target = re.compile(rf"\s*(?:(?:const )?\w+ \*?)?{name}(?:\[[^=]*\])?(?: \+?= |;)")
    for line in lines:
        written = target.match(line)
        if word.search(line, written.end() if written else 0):
            return True
    return False
