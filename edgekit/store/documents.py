"""Runs as JSON, and back: in files of `results export`, and in the outbox. Anything that is read
was written elsewhere, and is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from edgekit.errors import InputError
from edgekit.store.checked import check_id, check_time, checked, wrong
from edgekit.store.runs import MOST_SAMPLES, BenchRun

FORMAT = "edgekit-results"
FORMAT_VERSION = 1


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
        raise wrong("bench_runs", "a list")
    return tuple(run_from_document(run) for run in runs)


def run_from_document(document: object) -> BenchRun:
    run: BenchRun = checked(BenchRun, document, "run")
    check_id(run.id, "run.id")
    check_time(run.measured_at, "run.measured_at")
    if len(run.samples) > MOST_SAMPLES:
        raise wrong("run.samples", "at most a million numbers")
    return run
