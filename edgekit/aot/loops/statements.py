"""Statements of C between TVM's loops and the text, in a form that can still be moved."""

from __future__ import annotations

from collections.abc import Sequence
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
