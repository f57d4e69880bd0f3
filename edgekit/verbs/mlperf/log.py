"""Reads LoadGen's detailed log: lines of JSON, each with a key and a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.base.errors import InputError
from edgekit.base.files import storage_errors
from edgekit.base.json_reader import read_json

_MARK = ":::MLLOG"


@dataclass(frozen=True)
class Line:
    key: str
    value: Any
    is_error: bool
    is_warning: bool


@dataclass(frozen=True)
class DetailLog:
    lines: tuple[Line, ...]

    def value(self, key: str) -> Any:
        """Return the value of a key; None if the log has none."""
        return next((line.value for line in self.lines if line.key == key), None)

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(str(line.value) for line in self.lines if line.is_error)


def read_detail_log(path: Path) -> DetailLog:
    """Read a detailed log; raise InputError for any other file."""
    with storage_errors("read LoadGen's log", path):
        text = path.read_text("utf-8", errors="replace")
    try:
        return DetailLog(tuple(_lines(text)))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path} is no detailed log of LoadGen's: {error}", hint="run `edgekit mlperf` again"
        ) from error


def _lines(text: str) -> Iterator[Line]:
    for line in text.splitlines():
        if line.startswith(_MARK):
            found = read_json(line[len(_MARK) :])
            if not isinstance(found, dict) or not isinstance(found.get("metadata", {}), dict):
                raise ValueError("a line holds no key and value")
            about = found.get("metadata", {})
            flags = [bool(about.get(name, False)) for name in ("is_error", "is_warning")]
            yield Line(found["key"], found["value"], *flags)
