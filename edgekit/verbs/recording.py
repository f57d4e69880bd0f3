"""Stores the reports of benchmarks and evaluations."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.base.json_text import json_line
from edgekit.bundle.sizes import largest_in_words
from edgekit.store.address import findings_folder, runs_folder
from edgekit.store.address import is_off as is_off
from edgekit.store.findings import Findings
from edgekit.store.moments import now
from edgekit.store.outbox import post, post_findings
from edgekit.store.runs import BenchRun, BuildFacts, Conditions, Evaluation

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.verbs.bench_report import BenchReport
    from edgekit.verbs.evaluation.report import EvaluationReport


def keep_bench(
    bundle: Bundle,
    report: BenchReport,
    purpose: str,
    store: str | None = None,
    events: Events = SILENT,
) -> str | None:
    """Write a measurement to the disk and return the run's id.

    The store takes it when `edgekit results` opens it next. A failure is only a warning.
    """
    if is_off(store):
        return None
    run = run_of(bundle, report, purpose)
    is_kept = _posted(lambda: post(run, runs_folder(store)), events)
    return run.id if is_kept else None


def keep_evaluation(
    bundle: Bundle,
    report: EvaluationReport,
    purpose: str,
    store: str | None = None,
    events: Events = SILENT,
) -> str | None:
    """Write the figures of an evaluation to the disk as `keep_bench` does."""
    if is_off(store):
        return None
    kept = Evaluation(
        id=uuid.uuid4().hex,
        measured_at=now(),
        build=_facts(bundle),
        device=report.device,
        host=socket.gethostname(),
        purpose=purpose,
        task=report.task,
        data=report.data.resolve().name,
        samples=report.samples,
        measured_by=report.measured_by,
        seconds=report.seconds,
        figures=report.accuracy,
    )
    findings = Findings(evaluations=(kept,))
    is_kept = _posted(lambda: post_findings(findings, findings_folder(store)), events)
    return kept.id if is_kept else None


def _posted(post_it: Callable[[], object], events: Events) -> bool:
    try:
        post_it()
    except EdgekitError as error:
        events.warn(f"the measurement was not kept: {error.message}")
        return False
    return True


def _facts(bundle: Bundle) -> BuildFacts:
    manifest = bundle.manifest
    return BuildFacts(
        digest=bundle.digest,
        model=manifest.model.name,
        model_sha256=manifest.model.sha256,
        board=manifest.board.name,
        target=json_line(manifest.target),
        compiler=manifest.toolchain.compiler,
        offload=tuple(dict.fromkeys(region.backend for region in manifest.regions)),
        edgekit_version=manifest.edgekit_version,
        tvm_version=manifest.versions.tvm,
    )


def run_of(bundle: Bundle, report: BenchReport, purpose: str) -> BenchRun:
    return BenchRun(
        id=uuid.uuid4().hex,
        measured_at=now(),
        build=_facts(bundle),
        device=report.device,
        host=socket.gethostname(),
        purpose=purpose,
        measured_by=report.measured_by,
        **_figures(report),
        warmup=report.warmup,
        conditions=Conditions(
            threads=report.threads,
            governor=report.governor,
            frequency_mhz=report.frequency_mhz,
            load_average=report.load_average,
            busy=report.busy,
            preemptions=report.preemptions,
            temperature_c=report.temperature,
            throttled=report.throttled,
        ),
        model_peak=report.memory.model_peak,
        process_peak=report.memory.process_peak,
        joules=None if report.power is None else report.power.joules,
        sizes="" if report.sizes == largest_in_words(bundle.manifest) else report.sizes,
        notes=report.notes,
        profile=report.timed,
    )


def _figures(report: BenchReport) -> dict[str, Any]:
    """Return times, or a microcontroller's counts: times of an emulated one mean nothing."""
    counted = report.counted
    if counted is not None:
        return {
            "unit": counted.unit,
            "median": counted.median,
            "p90": counted.maximum,
            "p99": counted.maximum,
            "mean": counted.median,
            "minimum": counted.minimum,
            "stdev": 0.0,
            "samples": (),
        }
    return {
        "unit": "seconds",
        **{name: getattr(report, name) for name in ("median", "p90", "p99", "mean", "minimum")},
        "stdev": report.stdev,
        "samples": tuple(round(seconds * 1e9) for seconds in report.samples),
    }
