"""Finds boards/*.toml and toolchains/*.toml, and reads them strictly.

A profile is not trusted. `TableReader` reads it key by key and collects every problem instead of
stopping at the first. An unknown key is a problem too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

from edgekit.base.decode import (
    MISSING,
    UNKNOWN,
    Check,
    Convert,
    DecodeError,
    Most,
    Range,
    decode,
    words_for,
)
from edgekit.base.decode import show as show
from edgekit.base.errors import EdgekitError, ProfileError
from edgekit.base.paths import ProfileKind, profile_search_path
from edgekit.base.sizes import SIZE_EXPECTED, parse_size
from edgekit.base.toml_source import KeyPath, TomlError, TomlSource, parse_toml, read_toml
from edgekit.base.trust import effects_of, is_own_folder, require_trust, trust_effects
from edgekit.base.wording import nearest

SCHEMA_VERSION = 1
_LONGEST_LIST = 64
LISTED = Most(_LONGEST_LIST, "items")
"""The mark of lists in a profile."""
_MOST_PROBLEMS = 100
_MEANINGLESS = "a key that means nothing here"
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
NAME_EXPECTED = "a name of a-z, 0-9 and -"
_SINGULAR: Mapping[ProfileKind, str] = {"boards": "board", "toolchains": "toolchain"}

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """A fault in a profile: its place, what was found, what was expected."""

    file: Path
    line: int
    key: str
    found: str
    expected: str
    nearest: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: {self.key}:"
        if not self.expected:
            return f"{place} {self.found}"
        sentence = f"{place} found {self.found}, expected {self.expected}"
        return f"{sentence}; did you mean {self.nearest}?" if self.nearest else sentence


@dataclass(frozen=True)
class ProfileEntry(Generic[T]):
    """A profile in a list: its content, or the reason why it can't be used."""

    name: str
    path: Path
    profile: T | None
    trouble: str | None


class TableReader:
    """Reads one table of a profile.

    Every getter returns a value of its type in any case. Faults are added to `problems`, and the
    reader of the whole profile raises if there are any.
    """

    def __init__(
        self,
        source: TomlSource,
        table: Mapping[str, object],
        path: KeyPath,
        problems: list[Problem],
    ) -> None:
        self.problems = problems
        self._source = source
        self._table = table
        self._path = path
        self._keys_read: dict[str, None] = {}

    def has(self, key: str) -> bool:
        """Return whether an optional key is present."""
        self._keys_read[key] = None
        return key in self._table

    def names(self) -> tuple[str, ...]:
        """Return the keys of a table whose keys the user chose."""
        return tuple(self._table)

    def unread_tables(self) -> tuple[str, ...]:
        """Return the tables inside this one that were not read, whose names users chose."""
        return tuple(
            key
            for key, value in self._table.items()
            if isinstance(value, dict) and key not in self._keys_read
        )

    def raw(self, key: str) -> object:
        """Return a value unchecked; None if it is missing."""
        self._keys_read[key] = None
        return self._table.get(key)

    def complain(self, key: str, found: str, expected: str, near: str | None = None) -> None:
        """Note a problem with a key of this table."""
        self._complain((key,), found, expected, near)

    def _complain(self, path: KeyPath, found: str, expected: str, near: str | None) -> None:
        whole = (*self._path, *path)
        line = self._source.line_of(whole)
        # An item of a list of texts is named by its text.
        named = whole[:-1] if isinstance(whole[-1], int) else whole
        key = ".".join(f"{part}" for part in named)
        self.problems.append(Problem(self._source.path, line, key, found, expected, near))

    def value(self, key: str, hint: Any, default: T) -> T:
        """Read a key as a type hint says; return the default after a problem."""
        self._keys_read[key] = None
        if key not in self._table:
            self.complain(key, "nothing", words_for(hint))
            return default
        return self.decoded(key, hint, self._table[key], default)

    def decoded(self, key: str, hint: Any, document: object, default: T) -> T:
        """Read a document as the value of a key; return the default after a problem."""
        try:
            return cast(T, decode(hint, document))
        except DecodeError as error:
            self._add((key,), error)
            return default

    def rest(self, kind: type[T], **given: object) -> T | None:
        """Read what was not read yet as a dataclass; return None after a problem.

        `given` are fields that the table may not hold.
        """
        table = {key: value for key, value in self._table.items() if key not in self._keys_read}
        for key in given.keys() & table.keys():
            self.complain(key, _MEANINGLESS, "a key of this table")
        self._keys_read.update(dict.fromkeys(table))
        try:
            return decode(kind, {**table, **given})
        except DecodeError as error:
            self._add((), error)
            return None

    def _add(self, path: KeyPath, error: DecodeError) -> None:
        words = {MISSING: "nothing", UNKNOWN: _MEANINGLESS}
        for p in error.problems:
            found = words.get(p.found, p.found)
            self._complain((*path, *p.path), found, p.expected, p.nearest)

    def text(self, key: str, *, limit: int = 200) -> str:
        return self.value(key, Annotated[str, one_line(limit)], "")

    def matching(self, key: str, pattern: re.Pattern[str], expected: str) -> str:
        return self.value(key, Annotated[str, matching(pattern, expected)], "")

    def choice(self, key: str, choices: Iterable[str], noun: str | None = None) -> str:
        """Read one of some words. `noun` names a set that is too long to be listed."""
        words = tuple(choices)
        expected = noun or one_of(words)
        value = self._get(key, expected)
        if value is None:
            return ""
        if value in words:
            return str(value)
        self.complain(key, show(value), expected, nearest(str(value)[:200], words))
        return ""

    def choices(self, key: str, choices: Iterable[str], noun: str | None = None) -> tuple[str, ...]:
        """Read a list of some words, each once, in the file's order."""
        words = tuple(choices)
        good: list[str] = []
        for value in self._list(key, f"a list of {noun or one_of(words)}"):
            if value not in words:
                near = nearest(str(value)[:200], words)
                self.complain(key, show(value), noun or one_of(words), near)
            elif value in good:
                self.complain(key, f"{show(value)} twice", "each word once")
            else:
                good.append(str(value))
        return tuple(good)

    def texts(self, key: str, pattern: re.Pattern[str], expected: str) -> tuple[str, ...]:
        text = Annotated[str, matching(pattern, expected)]
        return self.value(key, Annotated[tuple[text, ...], LISTED], ())

    def integer(self, key: str, low: int, high: int) -> int:
        hint = Annotated[int, Range(low, high)] if low < high else Literal[low]
        return self.value(key, hint, low)

    def size(self, key: str) -> int:
        """Read a size of at least one byte."""
        return self.value(key, Size, 0)

    def table(self, key: str) -> TableReader:
        value = self._get(key, f"a table [{key}]")
        if value is None or not isinstance(value, dict):
            if value is not None:
                self.complain(key, show(value), f"a table [{key}]")
            return TableReader(self._source, {}, (*self._path, key), [])
        return TableReader(self._source, value, (*self._path, key), self.problems)

    def tables(self, key: str) -> tuple[TableReader, ...]:
        expected = f"tables [[{'.'.join(str(part) for part in (*self._path, key))}]]"
        values = self._list(key, expected)
        readers: list[TableReader] = []
        for index, value in enumerate(values):
            if isinstance(value, dict):
                path = (*self._path, key, index)
                readers.append(TableReader(self._source, value, path, self.problems))
            else:
                self.complain(key, show(value), expected)
        return tuple(readers)

    def finish(self) -> None:
        """Complain of every key that was not read."""
        for key in self._table:
            if key not in self._keys_read and len(self.problems) < _MOST_PROBLEMS:
                keys = tuple(self._keys_read)
                expected = f"one of the keys {', '.join(keys)}"
                self.complain(key, _MEANINGLESS, expected, nearest(key[:200], keys))

    def _get(self, key: str, expected: str) -> object | None:
        """Return the value; None, and a problem, if it is missing. TOML has no null."""
        self._keys_read[key] = None
        value = self._table.get(key)
        if value is None:
            self.complain(key, "nothing", expected)
        return value

    def _list(self, key: str, expected: str) -> list[object]:
        value = self._get(key, expected)
        if value is None:
            return []
        if isinstance(value, list) and len(value) <= _LONGEST_LIST:
            return value
        if isinstance(value, list):
            self.complain(key, f"{len(value)} items", f"at most {_LONGEST_LIST}")
            return []
        self.complain(key, show(value), expected)
        return []


Parse = Callable[[TableReader, Path], T | None]
"""A function that reads a profile; it returns None only after a problem."""


def one_of(words: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{word}"' for word in words)
    return f"one of {quoted}" if len(words) > 1 else quoted


def matching(pattern: re.Pattern[str] | str, expected: str) -> Check:
    """Return the mark of texts that match a pattern."""
    form = re.compile(pattern)

    def holds(text: str) -> bool:
        return len(text) <= 200 and form.fullmatch(text) is not None

    return Check(expected, holds)


def one_line(limit: int) -> Check:
    """Return the mark of printable texts on one line."""

    def holds(text: str) -> bool:
        return 0 < len(text) <= limit and text.isprintable()

    return Check(f"text of 1 to {limit} characters on one line", holds)


def _size(value: object) -> int:
    size = parse_size(value) if isinstance(value, str) else 0
    if size == 0:
        raise ValueError
    return size


Size = Annotated[int, Convert(SIZE_EXPECTED, _size)]
"""A size of at least one byte."""


def profile_names(kind: ProfileKind, folder: Path | None = None) -> tuple[str, ...]:
    """List the names of all profiles of a kind without opening a file."""
    names = {
        file.stem
        for place in profile_search_path(kind, folder)
        for file in place.glob("*.toml")
        if NAME_PATTERN.fullmatch(file.stem)
    }
    return tuple(sorted(names))


def find_profile(kind: ProfileKind, name: str, folder: Path | None = None) -> Path:
    """Find the file that wins for a name. The profiles of a workspace's `folder` go first."""
    word = _SINGULAR[kind]
    if NAME_PATTERN.fullmatch(name):
        for place in profile_search_path(kind, folder):
            file = place / f"{name}.toml"
            if file.exists():
                return file
    near = nearest(name[:200], profile_names(kind, folder))
    meant = f"did you mean {near}? " if near else ""
    raise ProfileError(
        f"there is no {word} called {show(name)}",
        hint=f"{meant}`edgekit {kind}` lists every {word}; `edgekit {kind} new` makes one",
        details=tuple(f"looked in {place}" for place in profile_search_path(kind, folder)),
    )


def shadowed_profiles(
    kind: ProfileKind, winner: Path, folder: Path | None = None
) -> tuple[Path, ...]:
    """List the files of the same name that a profile hides."""
    files = (place / winner.name for place in profile_search_path(kind, folder))
    return tuple(file for file in files if file != winner and file.exists())


def list_profiles(
    kind: ProfileKind, parse: Parse[T], folder: Path | None = None
) -> tuple[ProfileEntry[T], ...]:
    """List every profile of a kind. A broken one is listed as such."""
    entries: list[ProfileEntry[T]] = []
    for name in profile_names(kind, folder):
        path = find_profile(kind, name, folder)
        try:
            entries.append(ProfileEntry(name, path, read_profile(path, kind, parse), None))
        except ProfileError as error:
            entries.append(ProfileEntry(name, path, None, error.message))
    return tuple(entries)


def examine_profile(
    path: Path, kind: ProfileKind, parse: Parse[T]
) -> tuple[T | None, tuple[Problem, ...]]:
    """Read a profile and list everything wrong with it; ProfileError if it is missing."""
    try:
        return _examine(_source(path), path, parse)
    except TomlError as error:
        return None, (syntax_problem(path, error),)


def _source(path: Path) -> TomlSource:
    try:
        return read_toml(path)
    except OSError as error:
        raise ProfileError(
            f"{path} cannot be read: {error.strerror}", hint="check the path and its permissions"
        ) from error


def _examine(
    source: TomlSource, path: Path, parse: Parse[T]
) -> tuple[T | None, tuple[Problem, ...]]:
    problems: list[Problem] = []
    reader = TableReader(source, source.table, (), problems)
    reader.integer("schema", SCHEMA_VERSION, SCHEMA_VERSION)
    name = reader.matching("name", NAME_PATTERN, NAME_EXPECTED)
    if name and name != path.stem:
        reader.complain("name", show(name), f'"{path.stem}", as the file is called')
    parsed = parse(reader, path)
    reader.finish()
    problems.sort(key=lambda problem: problem.line)
    return parsed, tuple(problems)


def read_as(
    path: Path,
    take: Callable[[TableReader], T | None],
    refused: Callable[[str, tuple[str, ...]], EdgekitError],
    text: str | None = None,
) -> T:
    """Read a TOML file with `take`, which returns None only after a problem.

    `refused` makes the error of a message and its details. `text` is the file's, if it was read.
    """
    try:
        source = read_toml(path) if text is None else parse_toml(path, text.encode())
    except OSError as error:
        raise refused(f"{path} cannot be read: {error.strerror}", ()) from error
    except TomlError as error:
        raise refused(str(syntax_problem(path, error)), ()) from error
    problems: list[Problem] = []
    reader = TableReader(source, source.table, (), problems)
    taken = take(reader)
    reader.finish()
    if taken is None or problems:
        raise refused(*in_words(path, problems))
    return taken


def in_words(path: Path, problems: Sequence[Problem]) -> tuple[str, tuple[str, ...]]:
    """Return the message about a file's problems, and its details."""
    if len(problems) == 1:
        return str(problems[0]), ()
    in_order = sorted(problems, key=lambda problem: problem.line)
    return f"{path} has {len(problems)} problems", tuple(str(problem) for problem in in_order)


def read_profile(path: Path, kind: ProfileKind, parse: Parse[T]) -> T:
    """Read a profile to show it; ProfileError with every problem if it has any."""
    return _load(path, kind, parse, only_to_show=True)


def load_profile(path: Path, kind: ProfileKind, parse: Parse[T]) -> T:
    """Read a profile to use it.

    UntrustedProjectError if a project holds it and the user has not agreed to what it makes edgekit
    run.
    """
    return _load(path, kind, parse, only_to_show=False)


def _load(
    path: Path,
    kind: ProfileKind,
    parse: Parse[T],
    *,
    only_to_show: bool,
) -> T:
    try:
        source = _source(path)
    except TomlError as error:
        raise profile_error(path, kind, (syntax_problem(path, error),)) from error
    parsed, problems = _examine(source, path, parse)
    if problems or parsed is None:
        raise profile_error(path, kind, problems)
    if not only_to_show and not is_own_folder(kind, path.parent):
        require_trust(path, effects_of(kind, source.table), path.absolute().parents[1])
    return parsed


def trust_profile(path: Path, kind: ProfileKind) -> None:
    """Remember that the user agrees to a profile that the user made."""
    if not is_own_folder(kind, path.parent):
        trust_effects(path, effects_of(kind, read_toml(path).table))


def profile_error(path: Path, kind: ProfileKind, problems: tuple[Problem, ...]) -> ProfileError:
    hint = f"docs/boards.md describes every key; `edgekit {kind} check {path}` checks again"
    message, details = in_words(path, problems)
    return ProfileError(message, hint=hint, details=details)


def syntax_problem(path: Path, error: TomlError) -> Problem:
    at_line = re.search(r"at line (\d+)", str(error))
    line = int(at_line[1]) if at_line else 1
    return Problem(path, line, "the file", str(error), "a TOML file")
