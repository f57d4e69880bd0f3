"""TOML files that edgekit keeps for the user: devices.toml, farm.toml."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import tomli

from edgekit.base.errors import ProjectError
from edgekit.base.files import exclusive_lock, storage_errors, write_atomically
from edgekit.profiles.reader import TableReader, read_as

SCHEMA_VERSION = 1

T = TypeVar("T")
Value = str | int | None


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

    def refused(message: str, details: tuple[str, ...]) -> ProjectError:
        return ProjectError(message, hint=f"{page} describes every key", details=details)

    def with_schema(reader: TableReader) -> T:
        reader.integer("schema", SCHEMA_VERSION, SCHEMA_VERSION)
        return take(reader)

    return read_as(file, with_schema, refused, text)


@contextmanager
def editing(file: Path, intention: str) -> Iterator[None]:
    """Lock a file against other processes of the user, and create its folder."""
    with storage_errors(intention, file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(file.with_suffix(".lock")):
            yield


def edit_table(
    file: Path, text: str, place: tuple[str, str], values: Mapping[str, Value] | None
) -> None:
    """Write a file's text with the table [GROUP.NAME] set to some values, or removed for None.

    Everything else stays as the user wrote it: comments, order, the layout of other tables.
    """
    group, name = place
    expected = tomli.loads(text)
    tables = expected.setdefault(group, {})
    try:
        new = _without_table(text, place) if values is None else _with_table(text, place, values)
        tables.pop(name, None)
        if values is not None:
            tables[name] = {key: value for key, value in values.items() if value is not None}
        fits = {group: {}, **tomli.loads(new)} == expected
    except (ValueError, TypeError, LookupError, AttributeError):  # a table in an odd place
        fits = False
    if not fits:
        raise ProjectError(
            f"{file} is laid out in a way that edgekit can't edit",
            hint=f"edit it by hand: one table [{group}.NAME] for each entry",
        )
    write_atomically(file, new)


def _with_table(text: str, place: tuple[str, str], values: Mapping[str, Value]) -> str:
    """Return TOML with the table [GROUP.NAME] set to the values that are not None."""
    import tomlkit

    group, name = place
    document = tomlkit.parse(text)
    tables: Any = document.setdefault(group, tomlkit.table(is_super_table=True))
    if name not in tables:
        is_inline = isinstance(tables, tomlkit.items.InlineTable)
        tables[name] = tomlkit.inline_table() if is_inline else tomlkit.table()
    table = tables[name]
    for key in [key for key in table if values.get(key) is None]:
        del table[key]
    table.update({key: value for key, value in values.items() if value is not None})
    return document.as_string()


def _without_table(text: str, place: tuple[str, str]) -> str:
    """Return TOML without the table [GROUP.NAME] and the comment lines right above it."""
    import tomlkit

    group, name = place
    document = tomlkit.parse(text)
    tables: Any = document[group]
    # tomlkit counts the comment above the next table as part of this one.
    body = getattr(getattr(tables[name], "value", None), "body", [])
    parts = itertools.takewhile(lambda part: part[0] is None, reversed(body))
    below = "".join(item.as_string() for _, item in reversed(list(parts)))
    del tables[name]
    left = document.as_string()
    same = next((n for n, (a, b) in enumerate(zip(text, left, strict=False)) if a != b), len(left))
    start = left.rfind("\n", 0, same) + 1
    above, rest = left[:start], left[start:]
    while (line := above[above.rfind("\n", 0, -1) + 1 :]).startswith("#"):
        above = above.removesuffix(line)
    return (above + below.lstrip("\n") + rest).rstrip("\n") + "\n"
