"""Copies a profile under another name, with its comments."""

from __future__ import annotations

import re
from pathlib import Path

from edgekit.base.errors import ProfileError, UsageError
from edgekit.base.files import made_directory, storage_errors, write_atomically
from edgekit.base.paths import ProfileKind
from edgekit.base.quoting import toml_string
from edgekit.base.toml_source import TomlSource, parse_toml, read_toml
from edgekit.profiles.reader import NAME_EXPECTED, NAME_PATTERN, show

_VALUE = re.compile(r'=[ \t]*("(?!"")(?:\\.|[^"\\])*"|\'(?!\'\')[^\']*\')')


def copy_profile(
    kind: ProfileKind, like: Path, name: str, out: Path | None = None, *, force: bool = False
) -> Path:
    """Write a copy of the profile `like` named `name`. Return its path."""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(f"{show(name)} is not a name for a profile", hint=f"use {NAME_EXPECTED}")
    path = out or Path(kind) / f"{name}.toml"
    if path.name != f"{name}.toml":
        raise UsageError(
            f"a profile called {name} does not belong in {path.name}",
            hint=f"profiles are found by their file's name: -o {path.parent / name}.toml",
        )
    if path.exists() and not force:
        raise UsageError(f"{path} exists already", hint="--force overwrites it")
    text = _renamed(read_toml(like), name)
    with storage_errors(f"write the profile {name}", path), made_directory(path.parent):
        write_atomically(path, text)
    return path


def _renamed(source: TomlSource, name: str) -> str:
    lines = source.text.split("\n")
    title = f"{name}, like {source.table['title']}"[:80]
    for key, value in (("name", name), ("title", title)):
        number = source.line_of((key,)) - 1
        if match := _VALUE.search(lines[number]):
            start, end = match.span(1)
            lines[number] = lines[number][:start] + toml_string(value) + lines[number][end:]
    text = "\n".join(lines)
    table = parse_toml(source.path, text.encode()).table
    if (table.get("name"), table.get("title")) != (name, title):
        raise ProfileError(
            f"{source.path} spells its name or its title in a way that cannot be changed",
            hint='write them as name = "…" and title = "…", a line each',
        )
    return text
