"""Decodes untrusted documents (JSON, TOML) into dataclasses, as their type hints say.

Every problem is named by its path in the document. `Annotated` narrows a hint:

    cores: Annotated[int, Range(1, 64)]
    name: Annotated[str, Most(40), Check("a name in small letters", str.islower)]
    size: Annotated[int, Convert("a size such as 4 KiB", parse_size)]

The dataclasses of a union differ by a tag (a field with a Literal of one word) or by their keys.
`encode` is the reverse.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeVar

from edgekit.base.json_reader import read_json
from edgekit.base.wording import nearest

KeyPath = tuple[str | int, ...]
T = TypeVar("T")

MOST_PROBLEMS = 100
_LARGEST = (1 << 63) - 1
_SHOWN = 80
MISSING, UNKNOWN = "missing", "an unknown key"


@dataclass(frozen=True)
class Range:
    """The limits of a number, both included."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Most:
    """The most characters of a text, then without NUL, or the most items of a list or table."""

    count: int
    unit: str = "characters"

    def __str__(self) -> str:
        return f"of at most {self.count} {self.unit}"

    def holds(self, value: Any) -> bool:
        return len(value) <= self.count and not (isinstance(value, str) and "\0" in value)


@dataclass(frozen=True)
class Check:
    """A condition on a decoded value, and the words for values that meet it."""

    expected: str
    holds: Callable[[Any], object]


@dataclass(frozen=True)
class Convert:
    """A function from the document's value to the field's.

    It raises ValueError or OverflowError for a bad one.
    """

    expected: str
    function: Callable[[Any], Any]


Count = Annotated[int, Range(0, (1 << 53) - 1)]
"""A number of things. All readers of JSON agree on numbers up to its limit."""


Sha256 = Annotated[str, Check("64 digits of 0-9 and a-f", re.compile(r"[0-9a-f]{64}").fullmatch)]


@dataclass(frozen=True)
class Problem:
    """One fault of a document: its path, what was found, what was expected.

    Without `expected`, `found` is a sentence of its own.
    """

    path: KeyPath
    found: str
    expected: str
    nearest: str | None = None

    def __str__(self) -> str:
        if not self.expected:
            return f"{dotted(self.path)}: {self.found}"
        meant = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{dotted(self.path)} must be {self.expected}, and is {self.found}{meant}"


class DecodeError(ValueError):
    """A document that does not fit its dataclass; the message is about the first problem."""

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems = tuple(problems[:MOST_PROBLEMS])
        super().__init__(f"{source}: {self.problems[0]}" if source else str(self.problems[0]))


class _Options(NamedTuple):
    ignore_unknown: bool
    need_all: bool


class _Decoder(NamedTuple):
    expected: str
    read: Callable[[Any, _Options], Any]


def decode(
    hint: type[T],
    document: object,
    source: str = "",
    *,
    ignore_unknown: bool = False,
    need_all: bool = False,
) -> T:
    """Decode a document as a dataclass; DecodeError with every problem if it does not fit.

    `ignore_unknown` is for documents that others may extend. With `need_all`, fields with a default
    need their key too.
    """
    try:
        decoded = _decoder(typing.cast(Any, hint)).read(
            document, _Options(ignore_unknown, need_all)
        )
    except DecodeError as error:
        raise DecodeError(error.problems, source) from None
    except RecursionError:
        raise DecodeError([Problem((), "it is nested too deeply", "")], source) from None
    return typing.cast(T, decoded)


def decode_json(
    hint: type[T],
    data: bytes | bytearray | str,
    *,
    ignore_unknown: bool = False,
) -> T:
    """Decode a JSON document; JsonError or DecodeError, both ValueErrors, if it is none."""
    return decode(hint, read_json(data), ignore_unknown=ignore_unknown)


def encode(value: Any) -> Any:
    """Return what `decode` reads: dataclasses become tables, enums their values, tuples lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_key(f): encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def dotted(path: KeyPath) -> str:
    """Return a path as people write it: `steps[3].name`."""
    words = (f"[{key}]" if isinstance(key, int) else f".{_shown_key(key)}" for key in path)
    return "".join(words).removeprefix(".") or "the document"


def show(value: object) -> str:
    """Return a value as people write it, shortened if it is long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        text = value[:_SHOWN].encode("unicode_escape").decode("ascii")
        return f'"{text}{"…" if len(value) > _SHOWN else ""}"'
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else "a huge number"
    return str(value) if isinstance(value, float) else "a list"


def _shown_key(key: str) -> str:
    return key if key.isascii() and key.isprintable() and len(key) <= _SHOWN else show(key)


def wrong(value: object, expected: str, near: str | None = None) -> NoReturn:
    """Raise DecodeError for a value of the wrong form."""
    raise DecodeError([Problem((), show(value), expected, near)])


def words_for(hint: Any) -> str:
    """Return the words for the values that a type hint takes."""
    return _decoder(hint).expected


@functools.lru_cache(maxsize=4096)
def _decoder(hint: Any) -> _Decoder:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return functools.reduce(_narrowed, arguments[1:], _decoder(arguments[0]))
    if origin in (types.UnionType, typing.Union):
        return _union(arguments)
    if origin is Literal:
        return _word({word: word for word in arguments})
    if origin in (tuple, list):
        return _list(origin, _decoder(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_decoder(arguments[0]), _decoder(arguments[1]))
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _word({word.value: word for word in hint})
    return _SCALARS[hint]


def _parts(
    parts: Iterable[tuple[str | int, _Decoder, Any]], options: _Options, problems: list[Problem]
) -> list[Any]:
    """Decode the parts of a value. Raise DecodeError for their problems, and for those given."""
    values = []
    for key, decoder, part in parts:
        try:
            values.append(decoder.read(part, options))
        except DecodeError as error:
            problems += (dataclasses.replace(p, path=(key, *p.path)) for p in error.problems)
            if len(problems) >= MOST_PROBLEMS:
                break
    if problems:
        raise DecodeError(problems)
    return values


def _dataclass(kind: Any) -> _Decoder:
    @functools.cache
    def fields() -> dict[str, tuple[_Decoder, bool]]:
        # Made at first use, because a dataclass may hold itself.
        hints = typing.get_type_hints(kind, include_extras=True)
        return {_key(f): (_decoder(hints[f.name]), _is_needed(f)) for f in dataclasses.fields(kind)}

    attributes = {_key(f): f.name for f in dataclasses.fields(kind)}

    def read(value: Any, options: _Options) -> Any:
        if not isinstance(value, Mapping):
            wrong(value, "a table")
        known = fields()
        problems = [
            Problem((name,), MISSING, decoder.expected)
            for name, (decoder, is_needed) in known.items()
            if name not in value and (is_needed or options.need_all)
        ]
        if not options.ignore_unknown:
            keys = f"one of the keys {', '.join(known)}"
            unknown = (str(key) for key in value if key not in known)
            for key in islice(unknown, MOST_PROBLEMS):
                problems.append(Problem((key,), UNKNOWN, keys, nearest(key[:200], known)))
        names = [name for name in known if name in value]
        parts = ((name, known[name][0], value[name]) for name in names)
        values = _parts(parts, options, problems)
        try:
            return kind(**{attributes[n]: v for n, v in zip(names, values, strict=True)})
        except ValueError as error:
            raise DecodeError([Problem((), str(error), "")]) from error

    return _Decoder("a table", read)


def _key(field: dataclasses.Field[Any]) -> str:
    """Return a field's key: its name, or `metadata["key"]` for names that Python lacks."""
    return str(field.metadata.get("key", field.name))


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _list(kind: Callable[[list[Any]], Any], item: _Decoder) -> _Decoder:
    def read(value: Any, options: _Options) -> Any:
        if not isinstance(value, (list, tuple)):
            wrong(value, "a list")
        return kind(_parts(((i, item, part) for i, part in enumerate(value)), options, []))

    return _Decoder("a list", read)


def _mapping(key: _Decoder, item: _Decoder) -> _Decoder:
    def read(value: Any, options: _Options) -> Any:
        if not isinstance(value, Mapping):
            wrong(value, "a table")
        keys = _parts(((str(name), key, name) for name in value), options, [])
        parts = ((str(name), item, part) for name, part in value.items())
        return dict(zip(keys, _parts(parts, options, []), strict=True))

    return _Decoder("a table", read)


def _word(words: Mapping[Any, Any]) -> _Decoder:
    expected = ("one of " if len(words) > 1 else "") + ", ".join(map(show, words))

    def read(value: Any, _: _Options) -> Any:
        for word, meaning in words.items():
            if type(value) is type(word) and value == word:
                return meaning
        wrong(value, expected, nearest(str(value)[:200], map(str, words)))

    return _Decoder(expected, read)


def _union(members: tuple[Any, ...]) -> _Decoder:
    tables = tuple(member for member in members if dataclasses.is_dataclass(member))
    others = [m for m in members if m not in tables and m is not types.NoneType]
    decoders = [*map(_decoder, others), *([_variant(tables)] if tables else [])]
    expected = " or ".join(dict.fromkeys(decoder.expected for decoder in decoders))

    def read(value: Any, options: _Options) -> Any:
        if value is None and types.NoneType in members:
            return None
        problems: tuple[Problem, ...] = ()
        for decoder in decoders:
            try:
                return decoder.read(value, options)
            except DecodeError as error:
                # A problem inside the value says more than that it is no member.
                if len(decoders) == 1 or error.problems[0].path:
                    problems = problems or error.problems
        raise DecodeError(problems or [Problem((), show(value), expected)])

    return _Decoder(expected, read)


def _variant(kinds: tuple[Any, ...]) -> _Decoder:
    """Return the decoder of one of some dataclasses: their tag decides, or else the keys."""
    tags = {name: word for kind in kinds for name, word in _tag(kind)}
    by_word = {word: _decoder(kind) for kind in kinds for _, word in _tag(kind)}
    keys = {kind: {_key(field) for field in dataclasses.fields(kind)} for kind in kinds}

    def read(value: Any, options: _Options) -> Any:
        if not isinstance(value, Mapping):
            wrong(value, "a table")
        if len(kinds) == len(by_word) and len(tags) == 1 and len(kinds) > 1:
            (tag,) = tags
            if tag not in value:
                raise DecodeError([Problem((tag,), MISSING, _word(by_word).expected)])
            (decoder,) = _parts([(tag, _word(by_word), value[tag])], options, [])
            return decoder.read(value, options)
        kind = min(kinds, key=lambda kind: len(value.keys() ^ keys[kind]))
        return _decoder(kind).read(value, options)

    return _Decoder("a table", read)


def _tag(kind: Any) -> list[tuple[str, Any]]:
    """Return the name and the word of a dataclass's tag, if it has one."""
    for name, hint in typing.get_type_hints(kind).items():
        if typing.get_origin(hint) is Literal and len(typing.get_args(hint)) == 1:
            return [(name, typing.get_args(hint)[0])]
    return []


def _narrowed(decoder: _Decoder, mark: Any) -> _Decoder:
    if isinstance(mark, Convert):
        return _Decoder(mark.expected, functools.partial(_converted, mark))
    expected = mark.expected if isinstance(mark, Check) else f"{decoder.expected} {mark}"

    def read(value: Any, options: _Options) -> Any:
        decoded = decoder.read(value, options)
        if not mark.holds(decoded):
            wrong(value, expected)
        return decoded

    return _Decoder(expected, read)


def _converted(mark: Convert, value: Any, _: _Options) -> Any:
    try:
        return mark.function(value)
    except DecodeError:
        raise
    except (ValueError, OverflowError):
        wrong(value, mark.expected)


def finite(value: Any) -> float:
    """Return a number as a float; raise ValueError or OverflowError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise ValueError
    if math.isinf(number := float(value)):
        raise ValueError
    return number


def _is_text(value: Any) -> bool:
    """Tell whether a value is text without half a character (a lone surrogate)."""
    return isinstance(value, str) and (
        value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    )


def _path(value: Any) -> Path:
    if not isinstance(value, Path) and not _is_text(value):
        raise ValueError
    return Path(value)


def _plain(expected: str, holds: Callable[[Any], bool]) -> _Decoder:
    return _narrowed(_ANYTHING, Check(expected, holds))


_ANYTHING = _Decoder("a value", lambda value, _: value)
_SCALARS: Mapping[Any, _Decoder] = {
    int: _plain("a whole number", lambda v: type(v) is int and abs(v) <= _LARGEST),
    float: _narrowed(_ANYTHING, Convert("a number", finite)),
    str: _plain("text", _is_text),
    bool: _plain("true or false", lambda v: isinstance(v, bool)),
    object: _ANYTHING,
    Path: _narrowed(_ANYTHING, Convert("a path", _path)),
}
