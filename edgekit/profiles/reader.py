"""What boards/*.toml and toolchains/*.toml have in common: finding them, and reading them strictly.

A profile is untrusted text. `TableReader` takes it apart key by key and collects every problem
instead of stopping at the first; a key that nobody asked for is a problem too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from edgekit.base.errors import ProfileError
from edgekit.base.paths import ProfileKind, profile_search_path
from edgekit.base.sizes import SIZE_EXPECTED, parse_size
from edgekit.base.toml_source import KeyPath, TomlError, TomlSource, read_toml
from edgekit.base.trust import effects_of, is_own_folder, require_trust, trust_effects
from edgekit.base.wording import nearest

SCHEMA_VERSION = 1
_LONGEST_LIST = 64
_MOST_PROBLEMS = 100
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
NAME_EXPECTED = "a name of a-z, 0-9 and -"
_SINGULAR: Mapping[ProfileKind, str] = {"boards": "board", "toolchains": "toolchain"}

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a profile: where, what is there, what belongs there."""

    file: Path
    line: int
    key: str
    found: str
    expected: str
    nearest: str | None = None

    def __str__(self) -> str:
        sentence = (
            f"{self.file}:{self.line}: {self.key}: found {self.found}, expected {self.expected}"
        )
        return f"{sentence}; did you mean {self.nearest}?" if self.nearest else sentence


@dataclass(frozen=True)
class ProfileEntry(Generic[T]):
    """A profile as a list shows it: what it says, or why it can't be used."""

    name: str
    path: Path
    profile: T | None
    trouble: str | None


class TableReader:
    """One table of a profile. Every getter gives back a value of its type, come what may; what
    was wrong is in `problems`, and whoever reads a profile raises if there are any."""

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
        self._asked: dict[str, None] = {}

    def has(self, key: str) -> bool:
        """Whether a key that may be left out is there."""
        self._asked[key] = None
        return key in self._table

    def names(self) -> tuple[str, ...]:
        """The keys of a table where they are names that the user chose."""
        return tuple(self._table)

    def unread_tables(self) -> tuple[str, ...]:
        """The tables inside this one that nobody asked for, where users choose their names."""
        return tuple(
            key
            for key, value in self._table.items()
            if isinstance(value, dict) and key not in self._asked
        )

    def raw(self, key: str) -> object:
        """A value as it stands, for a caller that checks it; None where there is none."""
        self._asked[key] = None
        return self._table.get(key)

    def complain(self, key: str, found: str, expected: str, near: str | None = None) -> None:
        """Note a problem with a key of this table."""
        path = (*self._path, key)
        dotted = ".".join(f"{part}" for part in path)
        line = self._source.line_of(path)
        self.problems.append(Problem(self._source.path, line, dotted, found, expected, near))

    def text(self, key: str, *, limit: int = 200) -> str:
        expected = f"text of 1 to {limit} characters on one line"
        value = self._get(key, expected)
        if value is None:
            return ""
        if isinstance(value, str) and 0 < len(value) <= limit and value.isprintable():
            return value
        self.complain(key, show(value), expected)
        return ""

    def matching(self, key: str, pattern: re.Pattern[str], expected: str) -> str:
        value = self._get(key, expected)
        if value is None:
            return ""
        if isinstance(value, str) and len(value) <= 200 and pattern.fullmatch(value):
            return value
        self.complain(key, show(value), expected)
        return ""

    def choice(self, key: str, choices: Iterable[str], noun: str | None = None) -> str:
        """One of some words. `noun` names the set where it is too long to be listed."""
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
        """A list of some words, none twice, in the order given."""
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
        good: list[str] = []
        for value in self._list(key, f"a list, each {expected}"):
            if isinstance(value, str) and len(value) <= 200 and pattern.fullmatch(value):
                good.append(value)
            else:
                self.complain(key, show(value), expected)
        return tuple(good)

    def integer(self, key: str, low: int, high: int) -> int:
        expected = f"a whole number from {low} to {high}" if low < high else str(low)
        value = self._get(key, expected)
        if value is None:
            return low
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.complain(key, show(value), expected)
        return low

    def size(self, key: str) -> int:
        """Bytes, more than none."""
        value = self._get(key, SIZE_EXPECTED)
        if value is None:
            return 0
        try:
            size = parse_size(value) if isinstance(value, str) else 0
        except ValueError:
            size = 0
        if size == 0:
            self.complain(key, show(value), SIZE_EXPECTED)
        return size

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
        """Complain about every key that nobody asked for."""
        for key in self._table:
            if key not in self._asked and len(self.problems) < _MOST_PROBLEMS:
                known = tuple(self._asked)
                expected = f"one of the keys {', '.join(known)}"
                self.complain(
                    key, "a key that means nothing here", expected, nearest(key[:200], known)
                )

    def _get(self, key: str, expected: str) -> object | None:
        """The value, or None (and a problem) where there is none: TOML has no null."""
        self._asked[key] = None
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


def one_of(words: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{word}"' for word in words)
    return f"one of {quoted}" if len(words) > 1 else quoted


def show(value: object) -> str:
    """A value as the file spells it, cut where it is long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = '"' + value[:80].encode("unicode_escape").decode("ascii") + '"'
        return text if len(value) <= 80 else text[:-1] + '…"'
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return str(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"


def profile_names(kind: ProfileKind) -> tuple[str, ...]:
    """Every profile of a kind that can be named. Looks at file names only."""
    names = {
        file.stem
        for folder in profile_search_path(kind)
        for file in folder.glob("*.toml")
        if NAME_PATTERN.fullmatch(file.stem)
    }
    return tuple(sorted(names))


def find_profile(kind: ProfileKind, name: str) -> Path:
    """The file that wins for a name."""
    word = _SINGULAR[kind]
    if NAME_PATTERN.fullmatch(name):
        for folder in profile_search_path(kind):
            file = folder / f"{name}.toml"
            if file.exists():
                return file
    near = nearest(name[:200], profile_names(kind))
    meant = f"did you mean {near}? " if near else ""
    raise ProfileError(
        f"there is no {word} called {show(name)}",
        hint=f"{meant}`edgekit {kind}` lists every {word}; `edgekit {kind} new` makes one",
        details=tuple(f"looked in {folder}" for folder in profile_search_path(kind)),
    )


def shadowed_profiles(kind: ProfileKind, winner: Path) -> tuple[Path, ...]:
    """The files of the same name that a winning profile hides."""
    files = (folder / winner.name for folder in profile_search_path(kind))
    return tuple(file for file in files if file != winner and file.exists())


def list_profiles(
    kind: ProfileKind, parse: Callable[[TableReader, Path], T]
) -> tuple[ProfileEntry[T], ...]:
    """Every profile of a kind; a broken one is listed as such and stops nothing."""
    entries: list[ProfileEntry[T]] = []
    for name in profile_names(kind):
        path = find_profile(kind, name)
        try:
            entries.append(ProfileEntry(name, path, read_profile(path, kind, parse), None))
        except ProfileError as error:
            entries.append(ProfileEntry(name, path, None, error.message))
    return tuple(entries)


def examine_profile(
    path: Path, kind: ProfileKind, parse: Callable[[TableReader, Path], T]
) -> tuple[T | None, tuple[Problem, ...]]:
    """Read a profile and say everything that is wrong with it; ProfileError if it isn't there."""
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
    source: TomlSource, path: Path, parse: Callable[[TableReader, Path], T]
) -> tuple[T, tuple[Problem, ...]]:
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


def read_profile(path: Path, kind: ProfileKind, parse: Callable[[TableReader, Path], T]) -> T:
    """Read a profile to show it; ProfileError with every problem if there is one."""
    return _load(path, kind, parse, only_to_show=True)


def load_profile(path: Path, kind: ProfileKind, parse: Callable[[TableReader, Path], T]) -> T:
    """Read a profile to use it; UntrustedProjectError where it is a project's and its user has not
    agreed to what it makes edgekit run."""
    return _load(path, kind, parse, only_to_show=False)


def _load(
    path: Path,
    kind: ProfileKind,
    parse: Callable[[TableReader, Path], T],
    *,
    only_to_show: bool,
) -> T:
    try:
        source = _source(path)
    except TomlError as error:
        raise profile_error(path, kind, (syntax_problem(path, error),)) from error
    parsed, problems = _examine(source, path, parse)
    if problems:
        raise profile_error(path, kind, problems)
    if not only_to_show and not is_own_folder(kind, path.parent):
        require_trust(path, effects_of(kind, source.table))
    return parsed


def trust_profile(path: Path, kind: ProfileKind) -> None:
    """Remember that the user agrees to a profile: the user made it."""
    if not is_own_folder(kind, path.parent):
        trust_effects(path, effects_of(kind, read_toml(path).table))


def profile_error(path: Path, kind: ProfileKind, problems: tuple[Problem, ...]) -> ProfileError:
    hint = f"docs/boards.md describes every key; `edgekit {kind} check {path}` checks again"
    if len(problems) == 1:
        return ProfileError(str(problems[0]), hint=hint)
    return ProfileError(
        f"{path} has {len(problems)} problems",
        hint=hint,
        details=tuple(str(problem) for problem in problems),
    )


def syntax_problem(path: Path, error: TomlError) -> Problem:
    at_line = re.search(r"at line (\d+)", str(error))
    line = int(at_line[1]) if at_line else 1
    return Problem(path, line, "the file", str(error), "a TOML file")
