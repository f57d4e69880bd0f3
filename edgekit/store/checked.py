"""Frozen dataclasses from untrusted JSON: names, types and sizes are checked."""

from __future__ import annotations

import collections.abc
import json
import re
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from edgekit.base.errors import InputError

ID = re.compile(r"[0-9a-f]{32}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_LONGEST_TEXT = 10_000
_LONGEST_OBJECT = 4 << 20
LENGTHS: Mapping[str, int] = {
    "run.id": 32,
    "run.measured_at": 32,
    "run.device": 200,
    "run.host": 200,
    "run.purpose": 20,
    "run.unit": 20,
    "run.build.digest": 64,
    "run.build.model": 500,
    "run.build.model_sha256": 64,
    "run.build.board": 100,
    "run.build.edgekit_version": 50,
    "run.build.tvm_version": 50,
    "workload.key": 200,
    "record.id": 32,
    "record.session": 32,
    "record.device": 200,
    "record.measured_at": 40,
    "record.error": 50,
    "session.id": 32,
    "session.model": 500,
    "session.model_sha256": 64,
    "session.board": 100,
    "session.host": 200,
    "session.process": 100,
    "session.started_at": 40,
    "session.heard_at": 40,
    "session.ended_at": 40,
    "session.state": 20,
    "progress.session": 32,
    "progress.at": 40,
    "region.region": 200,
    "region.board": 100,
    "region.backend": 100,
    "region.version": 100,
    "region.device": 200,
    "region.measured_at": 40,
}
"""The length of each text column. PostgreSQL refuses longer texts."""
_LONG = {"workload.module": 64 << 20}
"""The limit of texts that may be far longer than others."""
WIDE_NUMBERS = ("run.model_peak", "run.process_peak", "run.samples")
"""The whole numbers of 64 bits; all others have 32."""


def checked(kind: Any, value: object, where: str) -> Any:
    """Read a dataclass; raise InputError for anything but an object with exactly its fields."""
    if not isinstance(value, Mapping):
        raise wrong(where, "an object")
    names = [field.name for field in fields(kind)]
    if set(value) != set(names):
        odd = sorted(map(str, set(value) ^ set(names)))
        raise wrong(where, f"exactly the known keys ({', '.join(odd[:3])})")
    types_of = typing.get_type_hints(kind)
    return kind(**{name: _value(types_of[name], value[name], f"{where}.{name}") for name in names})


def check_id(value: str, where: str) -> None:
    """Raise InputError unless a text is an id."""
    if not ID.fullmatch(value):
        raise wrong(where, "32 hexadecimal digits")


def check_time(value: str, where: str) -> None:
    """Raise InputError unless a text is a time."""
    if not TIME.fullmatch(value):
        raise wrong(where, "a time such as 2026-01-31T12:00:00Z")


def _value(kind: Any, value: object, where: str) -> Any:
    if is_dataclass(kind):
        return checked(kind, value, where)
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        (kind,) = (option for option in typing.get_args(kind) if option is not type(None))
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        if not isinstance(value, list | tuple):
            raise wrong(where, "a list")
        return tuple(_value(inner, item, where) for item in value)
    if typing.get_origin(kind) is collections.abc.Mapping:
        return _plain_object(value, where)
    if typing.get_origin(kind) is typing.Literal:
        if value not in typing.get_args(kind):
            raise wrong(where, " or ".join(typing.get_args(kind)))
        return value
    if kind is float and isinstance(value, int | float) and _is_finite(value):
        return float(value)
    if kind is str and isinstance(value, str) and _is_storable(value, where):
        return value
    if kind is bool and type(value) is bool:
        return value
    if (
        kind is int
        and type(value) is int
        and abs(value) < 1 << (63 if where in WIDE_NUMBERS else 31)
    ):
        return value
    raise wrong(where, _EXPECTED[kind])


def _plain_object(value: object, where: str) -> Mapping[str, object]:
    """Check that a value is a JSON object of moderate size; its content is free."""
    try:
        fits = isinstance(value, Mapping) and (
            len(json.dumps(value, allow_nan=False)) <= _LONGEST_OBJECT
        )
    except (ValueError, TypeError, RecursionError):
        fits = False
    if not fits or not isinstance(value, Mapping):
        raise wrong(where, "an object of moderate size")
    return value


def _is_finite(value: float) -> bool:
    return not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_storable(text: str, where: str) -> bool:
    """Tell whether a text fits its column and has no NUL or lone surrogate."""
    fits = len(text) <= {**LENGTHS, **_LONG}.get(where, _LONGEST_TEXT)
    return fits and "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


_EXPECTED = {int: "a whole number", bool: "true or false", float: "a number", str: "a short text"}


def wrong(where: str, expected: str) -> InputError:
    """Make the error for a value of the wrong form."""
    return InputError(
        f"the file of results is wrong at {where}: expected {expected}",
        hint="export it again, and don't edit it",
    )
