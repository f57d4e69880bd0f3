"""Reads an untrusted TOML file, and the line of each key."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli

from edgekit.base.wording import size

SIZE_LIMIT = 64 * 1024
_DEPTH_LIMIT = 8

KeyPath = tuple[str | int, ...]


class TomlError(ValueError):
    """The text is not TOML. The message gives the reason, with line and column if known."""


@dataclass(frozen=True)
class TomlSource:
    """The content of a TOML file, and the lines of its keys."""

    path: Path
    text: str
    table: Mapping[str, object]
    lines: Mapping[KeyPath, int]

    def line_of(self, key: KeyPath) -> int:
        """Return the line of a key, or of the nearest table around it; 1 for the whole file."""
        for length in range(len(key), 0, -1):
            line = self.lines.get(key[:length])
            if line is not None:
                return line
        return 1


def read_toml(path: Path) -> TomlSource:
    """Read a TOML file. TomlError if it is not TOML, OSError if it cannot be read."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise TomlError("it is not a regular file")
    with path.open("rb") as stream:
        data = stream.read(SIZE_LIMIT + 1)
    return parse_toml(path, data)


def parse_toml(path: Path, data: bytes) -> TomlSource:
    if len(data) > SIZE_LIMIT:
        raise TomlError(f"it is larger than {size(SIZE_LIMIT)}")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise TomlError(f"it is not UTF-8 text (at line {line}, column {column})") from error
    try:
        table = tomli.loads(text)
    except (ValueError, RecursionError) as error:
        # Python also raises ValueError for an integer of too many digits.
        last_line = text.rpartition("\n")[2]
        end = f"at line {text.count(chr(10)) + 1}, column {len(last_line) + 1}"
        raise TomlError(str(error).replace("at end of document", end)) from error
    return TomlSource(path, text, table, key_lines(text))


_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)+")
_KEY_PART = re.compile(r'[ \t]*("(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+)[ \t]*')
_VALUE_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\[{]|[\]}]|\n"
    r"|[^\"'#\[\]{}\n]+",
    re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of every key and table header of a valid TOML text.

    Keys inside inline tables are not listed: they have the line of their statement. Nor are keys
    deeper than any of edgekit's files has them.
    """
    lines: dict[KeyPath, int] = {}
    elements: dict[KeyPath, int] = {}
    table: KeyPath = ()
    position, line, counted = 0, 1, 0
    while position < len(text):
        if blank := _BLANK.match(text, position):
            position = blank.end()
            continue
        line += text.count("\n", counted, position)
        counted = position
        if text[position] == "[":
            is_array = text.startswith("[[", position)
            parts, position = _parse_key(text, position + (2 if is_array else 1))
            table = _enter(parts, is_array, elements)
            position = _skip_line(text, position)
            _note(lines, table, line)
        else:
            parts, position = _parse_key(text, position)
            _note(lines, table + parts, line)
            position = _skip_value(text, position + 1)
    return lines


def _note(lines: dict[KeyPath, int], path: KeyPath, line: int) -> None:
    """Remember the line of a key, and of the tables on the way to it that are new."""
    for length in range(1, min(len(path), _DEPTH_LIMIT) + 1):
        lines.setdefault(path[:length], line)


def _enter(parts: tuple[str, ...], is_array: bool, elements: dict[KeyPath, int]) -> KeyPath:
    """Return the full path of a table header. Arrays of tables in it mean their last element."""
    path: KeyPath = ()
    for index, part in enumerate(parts):
        path += (part,)
        if is_array and index == len(parts) - 1:
            elements[path] = elements.get(path, -1) + 1
        if path in elements:
            path += (elements[path],)
    return path


def _parse_key(text: str, position: int) -> tuple[tuple[str, ...], int]:
    parts: list[str] = []
    while match := _KEY_PART.match(text, position):
        part = match[1]
        parts.append(part[1:-1] if part[0] in "\"'" else part)
        position = match.end()
        if not text.startswith(".", position):
            break
        position += 1
    return tuple(parts), position


def _skip_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _skip_value(text: str, position: int) -> int:
    depth = 0
    while match := _VALUE_TOKEN.match(text, position):
        token = match[0]
        if token == "\n" and depth == 0:
            break
        depth += (token in "[{") - (token in "]}")
        position = match.end()
    return position if position < len(text) and text[position] == "\n" else len(text)
