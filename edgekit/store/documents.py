"""Runs as JSON, and back: in files of `results export`, and in the outbox. Anything that is read
was written elsewhere, and is checked."""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from edgekit.errors import InputError
from edgekit.store.runs import MOST_SAMPLES, BenchRun

FORMAT = "edgekit-results"
FORMAT_VERSION = 1
_ID = re.compile(r"[0-9a-f]{32}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_LONGEST_TEXT = 10_000
LONGEST: Mapping[str, int] = {
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
}
"""As long as their columns are: PostgreSQL takes no more."""
_WIDE = ("run.model_peak", "run.process_peak", "run.samples")
"""Whole numbers of 64 bits; all others have 32."""


def to_document(runs: tuple[BenchRun, ...]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "bench_runs": [asdict(run) for run in runs],
    }


def from_document(document: object) -> tuple[BenchRun, ...]:
    """InputError for anything but what `to_document` gives."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise InputError(
            "this is no file of results", hint="`edgekit results export` writes such files"
        )
    if document.get("version") != FORMAT_VERSION:
        raise InputError(
            f"the file is of version {document.get('version')!r}, "
            f"and this edgekit reads version {FORMAT_VERSION}",
            hint="export it again with the edgekit that is to import it",
        )
    runs = document.get("bench_runs")
    if not isinstance(runs, list):
        raise _wrong("bench_runs", "a list")
    return tuple(run_from_document(run) for run in runs)


def run_from_document(document: object) -> BenchRun:
    run: BenchRun = _build(BenchRun, document, "run")
    if not _ID.fullmatch(run.id):
        raise _wrong("run.id", "32 hexadecimal digits")
    if not _TIME.fullmatch(run.measured_at):
        raise _wrong("run.measured_at", "a time such as 2026-01-31T12:00:00Z")
    if len(run.samples) > MOST_SAMPLES:
        raise _wrong("run.samples", "at most a million numbers")
    return run


def _build(kind: Any, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(where, "an object")
    known = {field.name: field for field in fields(kind)}
    if set(value) != set(known):
        odd = sorted(map(str, set(value) ^ set(known)))
        raise _wrong(where, f"exactly the known keys ({', '.join(odd[:3])})")
    types_of = typing.get_type_hints(kind)
    return kind(**{name: _value(types_of[name], value[name], f"{where}.{name}") for name in known})


def _value(kind: Any, value: object, where: str) -> Any:
    if is_dataclass(kind):
        return _build(kind, value, where)
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        (kind,) = (option for option in typing.get_args(kind) if option is not type(None))
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        if not isinstance(value, list | tuple):
            raise _wrong(where, "a list")
        return tuple(_value(inner, item, where) for item in value)
    if kind is float and isinstance(value, int | float) and _is_finite(value):
        return float(value)
    if kind is str and isinstance(value, str) and _is_storable(value, where):
        return value
    if kind is bool and type(value) is bool:
        return value
    if kind is int and type(value) is int and abs(value) < 1 << (63 if where in _WIDE else 31):
        return value
    raise _wrong(where, _EXPECTED[kind])


def _is_finite(value: float) -> bool:
    return not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_storable(text: str, where: str) -> bool:
    """Of its length, without what databases refuse: NUL, and halves of surrogate pairs."""
    fits = len(text) <= LONGEST.get(where, _LONGEST_TEXT)
    return fits and "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


_EXPECTED = {int: "a whole number", bool: "true or false", float: "a number", str: "a short text"}


def _wrong(where: str, expected: str) -> InputError:
    return InputError(
        f"the file of results has something else than {expected} at {where}",
        hint="export it again; files are not meant to be edited",
    )
