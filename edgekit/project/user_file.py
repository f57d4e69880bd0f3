"""TOML files that edgekit keeps for the user: devices.toml, farm.toml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from edgekit.base.errors import ProjectError
from edgekit.base.files import exclusive_lock, storage_errors
from edgekit.base.quoting import toml_value
from edgekit.base.toml_source import TomlError, parse_toml
from edgekit.profiles.reader import Problem, TableReader, syntax_problem

SCHEMA_VERSION = 1

T = TypeVar("T")


def read_text(file: Path) -> str:
    """Return the text of a file, which is empty if the file is missing."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}",
            hint="check it and its permissions",
        ) from error


def parse(file: Path, text: str, take: Callable[[TableReader], T], page: str) -> T:
    """Parse a file's text with `take`. Refuse a file with problems, and name the `page` of the
    documentation that describes its keys."""
    hint = f"{page} describes every key"
    try:
        source = parse_toml(file, text.encode())
    except TomlError as error:
        raise ProjectError(str(syntax_problem(file, error)), hint=hint) from error
    problems: list[Problem] = []
    reader = TableReader(source, source.table, (), problems)
    reader.integer("schema", SCHEMA_VERSION, SCHEMA_VERSION)
    taken = take(reader)
    reader.finish()
    if len(problems) == 1:
        raise ProjectError(str(problems[0]), hint=hint)
    if problems:
        raise ProjectError(
            f"{file} has {len(problems)} problems",
            hint=hint,
            details=tuple(
                str(problem) for problem in sorted(problems, key=lambda problem: problem.line)
            ),
        )
    return taken


@contextmanager
def editing(file: Path, intention: str) -> Iterator[None]:
    """Lock a file against other processes of the user, and create its folder."""
    with storage_errors(intention, file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(file.with_suffix(".lock")):
            yield


def table_text(header: str, values: Mapping[str, str | int | None]) -> str:
    """Write a table as TOML, without the keys whose value is None."""
    lines = [f"{key} = {toml_value(value)}\n" for key, value in values.items() if value is not None]
    return f"[{header}]\n{''.join(lines)}"
