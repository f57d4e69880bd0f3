"""Reads untrusted JSON: each value has its type, or a BundleError is raised."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import NoReturn, TypeGuard, TypeVar

from edgekit.base.errors import BundleError, EdgekitError
from edgekit.base.json_reader import JsonError, read_json_object
from edgekit.models.comparison import Leeway
from edgekit.models.preprocess import Preprocess, parse_preprocess

_Word = TypeVar("_Word", bound=str)
_COUNT_LIMIT = 1 << 53
"""The largest number on which all JSON readers agree."""


def parse_json(text: bytes) -> object:
    try:
        return json.loads(text.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BundleError(
            f"the manifest is not JSON: {str(error)[:200]}",
            hint="build the bundle again, or get it again from the person who built it",
        ) from error


def _is_target(value: object) -> TypeGuard[dict[str, object]]:
    if not isinstance(value, dict):
        return False
    features = value.get("mattr", [])
    return (
        all(isinstance(value.get(key, ""), str) for key in ("kind", "mcpu", "mtriple"))
        and isinstance(features, list)
        and all(isinstance(feature, str) for feature in features)
    )


class Reader:
    """Reads a JSON object at a known place. Every key must be read before `close`."""

    def __init__(self, value: object, where: str) -> None:
        self._where = where
        if not isinstance(value, dict):
            self.refuse(f"{_kind(value)} where a table belongs")
        self.table: dict[str, object] = value
        self._keys_read: set[str] = set()

    def close(self) -> None:
        unknown = self.table.keys() - self._keys_read
        if unknown:
            self.refuse(f"an unknown key {ascii(min(unknown))[:80]}")

    def refuse(self, what: str) -> NoReturn:
        raise BundleError(
            f"{self._where} has {what}",
            hint="build the bundle again, or get it again from the person who built it",
        )

    def text(self, key: str) -> str:
        return self._text(key, self._take(key))

    def optional_text(self, key: str) -> str | None:
        found = self._take(key)
        return None if found is None else self._text(key, found)

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self._text(key, item) for item in self._items(key))

    def word(self, key: str, allowed: Sequence[_Word]) -> _Word:
        found = self.text(key)
        matching = [word for word in allowed if word == found]
        if not matching:
            self.refuse(f"{ascii(found)[:80]} as {key}, expected one of {', '.join(allowed)}")
        return matching[0]

    def sha256(self, key: str) -> str:
        found = self.text(key)
        if not re.fullmatch(r"[0-9a-f]{64}", found):
            self.refuse(f"no SHA-256 in {key}")
        return found

    def flag(self, key: str) -> bool:
        found = self._take(key)
        if not isinstance(found, bool):
            self._wrong(key, found, "true or false")
        return found

    def integer(self, key: str) -> int:
        return self._integer(key, self._take(key))

    def optional_integer(self, key: str) -> int | None:
        found = self._take(key)
        return None if found is None else self._integer(key, found)

    def integers(self, key: str) -> tuple[int, ...]:
        return tuple(self._integer(key, item) for item in self._items(key))

    def count(self, key: str) -> int:
        return self._count(key, self._take(key))

    def counts(self, key: str) -> tuple[int, ...]:
        return tuple(self._count(key, item) for item in self._items(key))

    def numbers(self, key: str) -> tuple[float, ...]:
        return tuple(self._number(key, item) for item in self._items(key))

    def number(self, key: str) -> float:
        return self._number(key, self._take(key))

    def child(self, key: str) -> Reader:
        return Reader(self._take(key), f"{self._where}.{key}")

    def optional_child(self, key: str) -> Reader | None:
        found = self._take(key)
        return None if found is None else Reader(found, f"{self._where}.{key}")

    def children(self, key: str) -> tuple[Reader, ...]:
        return tuple(
            Reader(item, f"{self._where}.{key}[{i}]") for i, item in enumerate(self._items(key))
        )

    def target(self, key: str) -> str:
        """Read TVM's target as JSON, and check the types that edgekit uses."""
        found = self.text(key)
        try:
            described: object = read_json_object(found)
        except JsonError as error:
            self.refuse(f"no target as {key}: {error}")
        while described is not None:
            if not _is_target(described):
                self.refuse(f"no target as {key}")
            described = described.get("host")
        return found

    def preprocess(self) -> Preprocess:
        try:
            return parse_preprocess(self.table, self._where)
        except EdgekitError as error:
            raise BundleError(error.message, hint=error.hint) from error

    def leeway(self) -> Leeway:
        found = Leeway(self.number("allowed"), self.number("share"), self.text("reason"))
        if found.allowed < 0.0 or not 0.0 <= found.share <= 1.0:
            self.refuse(f"a leeway of {found.allowed:g} for a share of {found.share:g}")
        self.close()
        return found

    def _take(self, key: str) -> object:
        self._keys_read.add(key)
        if key not in self.table:
            self.refuse(f"no {key}")
        return self.table[key]

    def _items(self, key: str) -> list[object]:
        found = self._take(key)
        if not isinstance(found, list):
            self._wrong(key, found, "a list")
        return found

    def _text(self, key: str, found: object) -> str:
        if not isinstance(found, str):
            self._wrong(key, found, "text")
        return found

    def _integer(self, key: str, found: object) -> int:
        if not isinstance(found, int) or isinstance(found, bool) or abs(found) > _COUNT_LIMIT:
            self._wrong(key, found, "a whole number")
        return found

    def _count(self, key: str, found: object) -> int:
        number = self._integer(key, found)
        if number < 0:
            self._wrong(key, found, "a number that is not negative")
        return number

    def _number(self, key: str, found: object) -> float:
        if isinstance(found, float) and math.isfinite(found):
            return found
        return float(self._integer(key, found))

    def _wrong(self, key: str, found: object, expected: str) -> NoReturn:
        self.refuse(f"{_kind(found)} as {key}, expected {expected}")


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "a table"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
