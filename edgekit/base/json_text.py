"""Any report as one JSON document: the only place where reports become JSON."""

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


def json_text(value: object) -> str:
    """A JSON document; what JSON can't hold (NaN, infinity) becomes null. One thing a line, but
    a list of numbers is one thing: nobody reads ten thousand samples one below the other."""
    return _written(plain(value), "\n")


def json_line(value: object) -> str:
    """The same on a single line."""
    return _scalar(plain(value))


def _written(value: Any, newline: str) -> str:
    """What `plain` gave; `newline` goes back to where the value's line begins."""
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
    """Or the null that stands for NaN."""
    return value is None or isinstance(value, (bool, int, float))


def plain(value: object) -> Any:
    """Dataclasses, paths, tuples and numpy values as what `json` takes."""
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
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
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
    """numpy scalars and arrays, without importing numpy."""
    converted = value.tolist()
    if type(converted) is type(value):  # a dtype that numpy itself doesn't know
        return plain(float(value))
    return plain(converted)


def _text(text: str) -> str:
    """A file name may hold bytes that are no text; JSON can't."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
