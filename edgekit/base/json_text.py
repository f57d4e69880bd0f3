"""Writes any report as one JSON document."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from enum import Enum
from pathlib import PurePath
from typing import Any

INTERNAL: Mapping[str, bool] = {"internal": True}
"""The metadata of a dataclass's field that is no part of a document."""


def json_text(value: object) -> str:
    """Return a JSON document. Values that JSON lacks (NaN, infinity) become null.

    Each value has a line of its own, but a list of numbers is on one line.
    """
    return _written(plain(value), "\n")


def json_line(value: object) -> str:
    """Return a JSON document on a single line."""
    return _scalar(plain(value))


def _written(value: Any, newline: str) -> str:
    """Write a result of `plain`. `newline` holds the indentation of the value's line."""
    inner = newline + "  "
    if isinstance(value, dict) and value:
        items = [f"{_scalar(key)}: {_written(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(items)}{newline}}}"
    if isinstance(value, list) and not all(_is_number(item) for item in value):
        items = [_written(item, inner) for item in value]
        return f"[{inner}{f',{inner}'.join(items)}{newline}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _is_number(value: Any) -> bool:
    """Return whether a value is a number, or the null in place of NaN."""
    return value is None or isinstance(value, (bool, int, float))


def plain(value: object) -> Any:
    """Convert dataclasses, paths, tuples and numpy values to what `json` takes."""
    if value is None or isinstance(value, (bool, int)):
        return int(value) if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, PurePath):
        return _text(str(value))
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if "internal" not in field.metadata
        }
    if isinstance(value, Mapping):
        return {_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, AbstractSet):
        return sorted((plain(item) for item in value), key=str)
    if type(value).__module__.partition(".")[0] in ("numpy", "ml_dtypes"):
        return _numpy(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _numpy(value: Any) -> Any:
    """Convert numpy scalars and arrays without importing numpy."""
    converted = value.tolist()
    if type(converted) is type(value):  # a dtype that numpy itself doesn't know
        return plain(float(value))
    return plain(converted)


def _text(text: str) -> str:
    """Replace bytes of a file name that are not text, which JSON can't hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
