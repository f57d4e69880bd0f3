"""Reads untrusted JSON: of a file, a device, a tracker, another program.

It refuses what JSON allows and programs fail on later: documents nested too deeply, numbers too
large for a machine, duplicate keys, text that is not Unicode. `int(value)` and `float(value)` of
the remaining numbers succeed.
"""

from __future__ import annotations

import json
import math
from typing import Any

DEPTH_LIMIT = 64
_WIDEST_INTEGER = 20
"""The most characters of an integer with its sign: it is below 10**20."""
_SHORTENED = 40


class JsonError(ValueError):
    """The data is not a JSON document that edgekit takes; the message says why."""


def read_json(data: bytes | bytearray | str, *, depth: int = DEPTH_LIMIT) -> Any:
    """Decode one JSON document; JsonError says what is wrong with it."""
    text = data if isinstance(data, str) else _decoded(bytes(data))
    try:
        document = json.loads(
            text,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_keys,
        )
    except RecursionError as error:
        raise _too_deep(depth) from error
    except JsonError:
        raise
    except ValueError as error:
        raise JsonError(f"it is not JSON: {error}") from error
    _check_tree(document, depth)
    return document


def read_json_object(data: bytes | bytearray | str, *, depth: int = DEPTH_LIMIT) -> dict[str, Any]:
    """Decode one JSON document that must be an object."""
    document = read_json(data, depth=depth)
    if not isinstance(document, dict):
        raise JsonError("it is JSON, but not an object")
    return document


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(f"it is not UTF-8 text: byte {error.start} is {error.reason}") from error


def _integer(text: str) -> int:
    if len(text) > _WIDEST_INTEGER:
        raise JsonError(f"it holds a number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError(f"it holds {text[:_SHORTENED]}, which is more than a number can be")
    return value


def _refuse_constant(text: str) -> Any:
    raise JsonError(f"it holds {text}, which is not JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = max(keys, key=keys.count)
        raise JsonError(f"it gives {ascii(twice)[:_SHORTENED]} twice")
    return found


def _check_tree(document: object, depth: int) -> None:
    """Refuse too deep nesting, and text with half a character (a lone surrogate)."""
    level: list[object] = [document]
    for _ in range(depth + 1):
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                for key in value:
                    _check_text(key)
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str):
                _check_text(value)
        if not below:
            return
        level = below
    raise _too_deep(depth)


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise JsonError(f"it holds {ascii(text)[:_SHORTENED]}, which is not text") from error


def _too_deep(depth: int) -> JsonError:
    return JsonError(f"it is nested more than {depth} deep")
