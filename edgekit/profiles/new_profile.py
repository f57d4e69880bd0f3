"""Copies a profile under another name, with its comments."""

from __future__ import annotations

from pathlib import Path

from edgekit.base.errors import UsageError
from edgekit.base.files import made_directory, storage_errors, write_atomically
from edgekit.base.options import option
from edgekit.base.paths import ProfileKind
from edgekit.base.toml_source import TomlSource, read_toml
from edgekit.profiles.reader import NAME_EXPECTED, NAME_PATTERN, show


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
        raise UsageError(f"{path} exists already", hint=f"{option('force')} overwrites it")
    text = _renamed(read_toml(like), name)
    with storage_errors(f"write the profile {name}", path), made_directory(path.parent):
        write_atomically(path, text)
    return path


def _renamed(source: TomlSource, name: str) -> str:
    """Return the profile's text with another name and title; comments and order stay."""
    import tomlkit

    document = tomlkit.parse(source.text)
    document["name"] = name
    document["title"] = f"{name}, like {source.table['title']}"[:80]
    return document.as_string()
