"""Runs as JSON: files of `results export`, and the outbox. Everything read is checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from edgekit.base.errors import InputError
from edgekit.store.checked import check_id, check_time, checked, wrong
from edgekit.store.runs import MOST_SAMPLES, BenchRun

FORMAT = "edgekit-results"
FORMAT_VERSION = 1


def run_document(run: BenchRun) -> dict[str, Any]:
    """Return a run as JSON types, without copies: a run may hold a million samples."""
    return {**vars(run), "build": vars(run.build), "conditions": vars(run.conditions)}


def written_document(runs: Iterable[BenchRun]) -> Iterator[str]:
    """Write a file of results in pieces, one line per run."""
    yield f'{{"format": "{FORMAT}", "version": {FORMAT_VERSION}, "bench_runs": ['
    for number, run in enumerate(runs):
        yield f"{',' if number else ''}\n{json.dumps(run_document(run))}"
    yield "]}\n"


def from_document(document: object) -> tuple[BenchRun, ...]:
    """Read a file of results; raise InputError for anything else."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise InputError(
            "the file is no file of results", hint="`edgekit results export` writes one"
        )
    if document.get("version") != FORMAT_VERSION:
        raise InputError(
            f"the file is of version {document.get('version')!r}, "
            f"and this edgekit reads version {FORMAT_VERSION}",
            hint="export it again with this version of edgekit",
        )
    runs = document.get("bench_runs")
    if not isinstance(runs, list):
        raise wrong("bench_runs", "a list")
    return tuple(run_from_document(run) for run in runs)


def run_from_document(document: object) -> BenchRun:
    """Read one run; raise InputError for anything else."""
    run: BenchRun = checked(BenchRun, document, "run")
    check_id(run.id, "run.id")
    check_time(run.measured_at, "run.measured_at")
    if len(run.samples) > MOST_SAMPLES:
        raise wrong("run.samples", "at most a million numbers")
    return run
