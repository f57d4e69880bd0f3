"""Exports and imports tuned kernels as MetaSchedule's JSON database, two files in a folder."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import InputError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import scratch_directory, storage_errors, write_atomically
from edgekit.base.json_reader import read_json
from edgekit.base.paths import cache_dir
from edgekit.base.wording import counted
from edgekit.compiler.schedules.choices import VERSION, TraceChoice, choice_as_json
from edgekit.compiler.schedules.trace_text import check_trace
from edgekit.store.database import Store
from edgekit.store.moments import now
from edgekit.store.old_records import of_session
from edgekit.store.results import LARGEST_IMPORT, Transfer, opened_store
from edgekit.store.tuning_runs import TuningRecord, Workload

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
DEVICE = "another tool"
"""The device of imported records, which MetaSchedule does not store."""
_NO_TIME = 1e9
"""The number of seconds from which MetaSchedule marks a failed candidate."""
_LONGEST_SECONDS = 86_400.0
_ENTER_POSTPROC = "EnterPostproc"
_TARGET_KEYS = ("kind", "mtriple", "mcpu", "mattr", "num-cores")


@dataclass(frozen=True)
class TraceToExport:
    module: int
    """The index among the modules."""
    trace: str
    seconds: float
    target: str


@dataclass(frozen=True)
class ToExport:
    folder: Path
    modules: tuple[str, ...]
    records: tuple[TraceToExport, ...]


@dataclass(frozen=True)
class Exported:
    written: int
    left_out: int


@dataclass(frozen=True)
class ToRead:
    """Lines of a workload file: the hash, and the module in MetaSchedule's own form."""

    workloads: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KernelOf:
    """A workload as edgekit's kernel."""

    key: str
    words: str
    module: str


Kernels = tuple[KernelOf | None, ...]


def export_metaschedule(folder: Path, url: str | None = None, events: Events = SILENT) -> Transfer:
    """Export all schedules that boards timed, with the steps that MetaSchedule adds.

    Those of emulators are left out: the files can't say what measured a time.
    """
    from edgekit.store.tuning import all_records

    with opened_store(url) as store, events.stage("export the tuned kernels") as stage:
        traces = [record for record in all_records(store) if _is_trace(record)]
        timed = [r for r in traces if of_session(r.workload.target, 1)[0] != "emulator"]
        order = _to_export(timed)
        with scratch_directory(cache_dir()) as scratch:
            done: Exported = _asked(ToExport(scratch, *order)) if order[1] else Exported(0, 0)
            with storage_errors("export the tuned kernels", folder):
                folder.mkdir(parents=True, exist_ok=True)
                for name in (WORKLOADS, RECORDS):
                    made = scratch / name
                    write_atomically(folder / name, made.read_bytes() if made.exists() else b"")
        if len(timed) < len(traces):
            left_out = len(traces) - len(timed)
            events.warn(f"records that an emulator timed are left out: {left_out}")
        if done.left_out:
            events.warn(f"left out {counted(done.left_out, 'record')} whose traces fit no kernel")
        stage.result = counted(done.written, "record")
        return Transfer(folder, str(store), done.written, 0)


def import_metaschedule(folder: Path, url: str | None = None, events: Events = SILENT) -> Transfer:
    """Import all new records, except those for another kind of processor or without a time."""
    from edgekit.store.findings import Findings
    from edgekit.store.saving import save_findings

    with events.stage("read the files"):
        workloads = [_workload_line(line) for line in _lines(folder / WORKLOADS)]
        found = [_record_line(line, len(workloads)) for line in _lines(folder / RECORDS)]
    with events.stage("understand the kernels"):
        kernels: Kernels = _asked(ToRead(tuple(workloads))) if workloads else ()
    understood = (_tuning_record(line, kernels[line.workload]) for line in found)
    records = [record for record in understood if record is not None]
    if len(records) < len(found):
        events.warn(
            f"left out {counted(len(found) - len(records), 'record')} that edgekit can't use"
        )
    with opened_store(url) as store, events.stage("import the tuned kernels") as stage:
        new = save_findings(store, [Findings(records=tuple(_missing(store, records)))])
        stage.result = counted(new, "new record")
        return Transfer(folder, str(store), len(records), new)


@dataclass(frozen=True)
class _Line:
    """A line of the file of records."""

    workload: int
    trace: Any
    seconds: tuple[float, ...]
    target: Mapping[str, object]


def _is_trace(record: TuningRecord) -> bool:
    return (
        record.choice.get("family") == "trace"
        and bool(record.choice.get("trace"))
        and record.workload.module is not None
        and record.error is None
        and record.best_us is not None
    )


def _to_export(
    records: Sequence[TuningRecord],
) -> tuple[tuple[str, ...], tuple[TraceToExport, ...]]:
    places: dict[str, int] = {}
    traces = []
    for record in records:
        place = places.setdefault(record.workload.module or "", len(places))
        seconds = (record.best_us or 0.0) / 1e6
        target = record.workload.target
        traces.append(TraceToExport(place, str(record.choice["trace"]), seconds, target))
    return tuple(places), tuple(traces)


def _missing(store: Store, records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """Return the records that the store does not have."""
    from edgekit.store.tuning import records_of

    known = {
        _identity(old)
        for workload in {record.workload for record in records}
        for old in records_of(store, workload.key, workload.target, workload.version)
        if _is_trace(old)
    }
    return [record for record in records if _identity(record) not in known]


def _identity(record: TuningRecord) -> str:
    """Hash a record's kernel, schedule and time, to a tenth of a nanosecond."""
    workload, time = record.workload, round((record.best_us or 0.0) * 1e4)
    trace = _numbers_only(read_json(str(record.choice["trace"])))
    parts = [workload.key, workload.target, workload.version, trace, time]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _numbers_only(trace: Any) -> Any:
    """Replace booleans, which MetaSchedule's files write as numbers."""
    if isinstance(trace, list):
        return [_numbers_only(part) for part in trace]
    return int(trace) if isinstance(trace, bool) else trace


def _tuning_record(line: _Line, kernel: KernelOf | None) -> TuningRecord | None:
    target = _target(line.target)
    trace = _trace(line.trace)
    times = [seconds for seconds in line.seconds if 0 < seconds < _NO_TIME]
    if kernel is None or target is None or trace is None or not times:
        return None
    record = TuningRecord(
        id="",
        workload=Workload(kernel.key, target, VERSION, kernel.words, kernel.module),
        session=None,
        device=DEVICE,
        measured_at=now(),
        choice=choice_as_json(TraceChoice(trace)),
        best_us=median(times) * 1e6,
        own_us=None,
    )
    return replace(record, id=_identity(record))


def _trace(document: Any) -> str | None:
    """Return a trace without its postprocessing, None if edgekit refuses it."""
    try:
        steps, decisions = document
        names = [step[0] for step in steps]
        end = names.index(_ENTER_POSTPROC) if _ENTER_POSTPROC in names else len(names)
        kept = [decision for decision in decisions if decision[0] < end]
        text = json.dumps([steps[:end], kept], separators=(",", ":"))
        check_trace(text)
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return text


def _target(document: Mapping[str, object]) -> str | None:
    """Return a target as `Target.as_json` writes it, None if it is no LLVM CPU."""
    if document.get("kind") != "llvm" or "mtriple" not in document or "mcpu" not in document:
        return None
    plain = {key: document[key] for key in _TARGET_KEYS if document.get(key)}
    return json.dumps(plain)


def _lines(path: Path) -> Iterator[Any]:
    with storage_errors("import tuned kernels", path):
        if not path.exists():
            raise InputError(
                f"{path.parent} is no MetaSchedule database: it has no {path.name}",
                hint="give the folder of MetaSchedule's tuning records",
            )
        if path.stat().st_size > LARGEST_IMPORT:
            raise InputError(f"{path} is larger than any such file", hint="check the path")
        text = path.read_text("utf-8", "replace")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield read_json(line)
            except (ValueError, RecursionError) as error:
                raise _wrong(path.name, number) from error


def _workload_line(line: Any) -> tuple[str, str]:
    if not isinstance(line, list) or len(line) != 2 or not all(isinstance(p, str) for p in line):
        raise _wrong(WORKLOADS)
    return (line[0], line[1])


def _record_line(line: Any, workloads: int) -> _Line:
    try:
        place, (trace, seconds, target, _) = line
        if type(place) is not int or not 0 <= place < workloads or not isinstance(target, dict):
            raise ValueError(place)
        times = tuple(float(time) for time in seconds or ())
        if not all(map(math.isfinite, times)):
            raise ValueError(times)
    except (ValueError, TypeError) as error:
        raise _wrong(RECORDS) from error
    return _Line(place, trace, times, target)


def _wrong(name: str, line: int | None = None) -> InputError:
    where = name if line is None else f"line {line} of {name}"
    return InputError(
        f"{where} is not as MetaSchedule writes it",
        hint="a search that was killed may have left half a line: remove it",
    )


def _asked(order: ToExport | ToRead) -> Any:
    """Answer an order in a child process, which a bad file may crash."""
    with Child("edgekit.tuning.metaschedule") as child:
        try:
            return child.ask(order, _LONGEST_SECONDS)
        except ChildGone as gone:
            raise InputError(
                f"TVM can't take these kernels: {gone.reason}",
                hint="another version of TVM may have written the files",
            ) from gone
