"""Runs as JSON: files of `results export`, and the outbox. Everything read is checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from edgekit.base.decode import DecodeError, decode, encode
from edgekit.base.errors import InputError
from edgekit.store.old_records import with_measurer
from edgekit.store.runs import BenchRun

T = TypeVar("T")

FORMAT = "edgekit-results"
FORMAT_VERSION = 4
_READ = (1, 2, 3, FORMAT_VERSION)
"""Version 1 does not say what measured a run, version 2 not at which sizes, version 3 not the time
of its steps."""


@dataclass(frozen=True)
class _Results:
    bench_runs: tuple[BenchRun, ...]


def written_document(runs: Iterable[BenchRun]) -> Iterator[str]:
    """Write a file of results in pieces, one line per run."""
    yield f'{{"format": "{FORMAT}", "version": {FORMAT_VERSION}, "bench_runs": ['
    for number, run in enumerate(runs):
        yield f"{',' if number else ''}\n{json.dumps(encode(run))}"
    yield "]}\n"


def from_document(document: object) -> tuple[BenchRun, ...]:
    """Read a file of results; raise InputError for anything else."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise InputError(
            "the file is no file of results", hint="`edgekit results export` writes one"
        )
    if document.get("version") not in _READ:
        raise InputError(
            f"the file is of version {document.get('version')!r}, "
            f"and this edgekit reads versions up to {FORMAT_VERSION}",
            hint="upgrade edgekit: a newer one wrote the file",
        )
    runs = document.get("bench_runs")
    runs = [with_measurer(run) for run in runs] if isinstance(runs, list) else runs
    return checked(_Results, {"bench_runs": runs}).bench_runs


def run_from_document(document: object) -> BenchRun:
    """Read one run; raise InputError for anything else."""
    return checked(BenchRun, with_measurer(document))


def checked(kind: type[T], document: object) -> T:
    """Read what a store wrote; raise InputError for anything but all of a dataclass's fields."""
    try:
        return decode(kind, document, "the file of results", need_all=True)
    except DecodeError as error:
        raise InputError(str(error), hint="export it again, and don't edit it") from error
