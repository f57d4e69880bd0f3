"""Statements of C between TVM's loops and the text, in a form that can still be moved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Line:
    text: str


@dataclass(frozen=True)
class Condition:
    text: str
    variables: frozenset[str]
    """The loop variables that it depends on."""


@dataclass(frozen=True)
class Guard:
    """Statements that run where all conditions hold."""

    conditions: tuple[Condition, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Choice:
    condition: str
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    kind: str
    variable: str
    begin: str
    end: str
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Scope:
    """A block that ends the life of its variables."""

    body: tuple[Statement, ...]


Statement = Line | Guard | Choice | Loop | Scope


def loop(made: Loop) -> Statement:
    """Return a loop; conditions that are the same in every round are tested once, before it."""
    body = made.body
    if len(body) == 1 and isinstance(body[0], Scope):
        made = replace(made, body=body[0].body)
    if len(body) == 1 and isinstance(body[0], Guard):
        guard = body[0]
        varying = tuple(c for c in guard.conditions if made.variable in c.variables)
        constant = tuple(c for c in guard.conditions if made.variable not in c.variables)
        if constant:
            inner = (Guard(varying, guard.body),) if varying else guard.body
            return Guard(constant, (replace(made, body=inner),))
    return made


def written(statements: Sequence[Statement], indent: str = "    ") -> list[str]:
    lines: list[str] = []
    for statement in statements:
        if isinstance(statement, Line):
            lines.append(indent + statement.text)
            continue
        deeper = indent + "    "
        if isinstance(statement, Loop):
            v = statement.variable
            head = (
                f"for ({statement.kind} {v} = {statement.begin}; {v} < {statement.end}; ++{v}) {{"
            )
            lines += [indent + head, *written(statement.body, deeper)]
        elif isinstance(statement, Guard):
            condition = " && ".join(c.text for c in statement.conditions)
            lines += [f"{indent}if ({condition}) {{", *written(statement.body, deeper)]
        elif isinstance(statement, Scope):
            lines += [f"{indent}{{", *written(statement.body, deeper)]
        else:
            lines += [f"{indent}if ({statement.condition}) {{", *written(statement.yes, deeper)]
            if statement.no:
                lines += [f"{indent}}} else {{", *written(statement.no, deeper)]
        lines.append(indent + "}")
    return lines


_DECLARATION = re.compile(
    r"\s*(?:const )?\w+ \*?(?P<variables>\w+(?:\[\d+\])?(?:, \w+)*)(?: = .*)?;"
)
_NO_TYPES = ("return", "goto", "else")


def with_unread_named(parameters: Sequence[str], lines: Iterable[str]) -> list[str]:
    """Return a body's lines with `(void)NAME;` for each parameter and variable that none reads:
    compilers then do not warn of them."""
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
