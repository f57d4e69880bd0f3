"""Measurements in the store: list, compare, export and import them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import InputError, NotComparableError, RegressionError, UsageError
from edgekit.base.events import SILENT, Events, Stage
from edgekit.base.files import replace_file, storage_errors
from edgekit.base.json_reader import read_json
from edgekit.base.measurer import measurer_in_words
from edgekit.base.quoting import csv_cell
from edgekit.base.report import Report
from edgekit.base.wording import counted, percent

if TYPE_CHECKING:
    from edgekit.store.bench_runs import RunFilter
    from edgekit.store.comparing import Comparison
    from edgekit.store.database import Store
    from edgekit.store.runs import BenchRun, Evaluation

LARGEST_IMPORT = 1 << 30
_RUNS_A_STEP = 1000
PREVIOUS, BEST = "previous", "best"
"""The names of earlier runs that a comparison accepts besides ids."""


@dataclass(frozen=True)
class Listing(Report):
    """Runs of a store."""

    store: str
    runs: tuple[BenchRun, ...]
    evaluations: tuple[Evaluation, ...] = ()
    """The latest evaluation of each of their builds that has one."""

    def headline(self) -> str:
        return f"{counted(len(self.runs), 'run')} in {self.store}"

    def accuracy_of(self, run: BenchRun) -> Evaluation | None:
        """Return the latest evaluation of a run's build, on whichever device."""
        return next((e for e in self.evaluations if e.build.digest == run.build.digest), None)


@dataclass(frozen=True)
class Evaluations(Report):
    """Evaluations of a store."""

    store: str
    evaluations: tuple[Evaluation, ...]

    def headline(self) -> str:
        return f"{counted(len(self.evaluations), 'evaluation')} in {self.store}"


@dataclass(frozen=True)
class Transfer:
    """Counts of an export or import."""

    path: Path
    store: str
    runs: int
    new: int
    """The number of imported runs that were new."""


@contextmanager
def opened_store(url: str | None = None, *, patient: bool = True) -> Iterator[Store]:
    """Open a store and deliver the measurements that wait for it."""
    from edgekit.store.address import findings_folder, is_own, outbox_folder, runs_folder
    from edgekit.store.database import close_store, open_store
    from edgekit.store.outbox import deliver, deliver_findings

    store = open_store(url, patient=patient)
    try:
        deliver(store, runs_folder(url))
        if is_own(url):
            deliver(store, outbox_folder())
        deliver_findings(store, findings_folder(url))
        yield store
    finally:
        close_store(store)


def list_results(chosen: RunFilter, url: str | None = None) -> Listing:
    """List runs, latest first."""
    from edgekit.store.bench_runs import list_bench_runs
    from edgekit.store.evaluations import last_evaluations

    with opened_store(url) as store:
        runs = list_bench_runs(store, chosen)
        known = last_evaluations(store, [run.build.digest for run in runs])
        return Listing(str(store), runs, tuple(known.values()))


def list_accuracy(chosen: RunFilter, url: str | None = None) -> Evaluations:
    """List evaluations, latest first."""
    from edgekit.store.evaluations import list_evaluations

    with opened_store(url) as store:
        return Evaluations(str(store), list_evaluations(store, chosen))


def show_result(name: str, url: str | None = None) -> BenchRun:
    """Find a run by its id, by the beginning of its id, or as `latest`."""
    from edgekit.store.bench_runs import find_bench_run

    with opened_store(url) as store:
        return find_bench_run(store, name)


def compare_results(before: str, after: str, url: str | None = None) -> Comparison:
    """Compare two runs by name.

    `before` may be previous or best, of the runs before `after` of its model, board and device.
    """
    from edgekit.store.bench_runs import find_bench_run
    from edgekit.store.comparing import compare_runs

    with opened_store(url) as store:
        later = find_bench_run(store, after)
        if before not in (PREVIOUS, BEST):
            return compare_runs(find_bench_run(store, before), later)
        earlier = _earlier(store, later, before)
    if earlier is None:
        raise UsageError(
            f"no older run of {later.build.model} on {later.device} can be compared with "
            f"{later.id[:12]}, which is in {later.unit} "
            f"(measured by: {measurer_in_words(later.measured_by).partition(':')[0]})",
            hint="`edgekit results list` shows all runs; runs are compared in one unit, and "
            "hardware's not with an emulator's",
        )
    return compare_runs(earlier, later)


def compare_with_earlier(after: str, before: str, url: str | None = None) -> Comparison | None:
    """Compare a run with the previous or the best one before it; None if it is the first."""
    from edgekit.store.bench_runs import find_bench_run
    from edgekit.store.comparing import compare_runs

    with opened_store(url) as store:
        later = find_bench_run(store, after)
        earlier = _earlier(store, later, before)
    return None if earlier is None else compare_runs(earlier, later)


def _earlier(store: Store, later: BenchRun, which: str) -> BenchRun | None:
    """Return the previous or the best run before one, preferably one that can be compared."""
    from edgekit.store.bench_runs import runs_before
    from edgekit.store.comparing import best_of, obstacles

    earlier = runs_before(store, later)
    fitting = [run for run in earlier if not obstacles(run, later)] or list(earlier)
    if not fitting:
        return None
    return best_of(fitting) if which == BEST else fitting[0]


def raise_if_regressed(comparison: Comparison, share: float) -> None:
    """Raise RegressionError if `after` is slower by more than a share, and NotComparableError if
    that can't be said."""
    if comparison.obstacles:
        raise NotComparableError(
            f"the runs can't be compared: {comparison.obstacles[0]}",
            hint="measure both under the same conditions",
            details=comparison.obstacles,
        )
    if comparison.regressed_by_more_than(share):
        raise RegressionError(
            f"{comparison.after.build.model} on {comparison.after.device} is "
            f"{percent(comparison.ratio - 1)} slower, and {percent(share)} was allowed",
            hint="`edgekit bench --profile` shows where the time goes",
        )


def export_results(path: Path, url: str | None = None, events: Events = SILENT) -> Transfer:
    """Write all runs to .json with samples, or to .csv without."""
    from edgekit.store.bench_runs import count_bench_runs, visit_bench_runs
    from edgekit.store.documents import written_document

    writers = {".json": written_document, ".csv": _csv_lines}
    lines = writers.get(path.suffix.lower())
    if lines is None:
        raise UsageError(
            f"{path.name} has no suffix of a format of results",
            hint="end it with .json for everything, or .csv for a table",
        )
    with (
        opened_store(url) as store,
        events.stage("export the results", total=count_bench_runs(store)) as stage,
        storage_errors("export the results", path),
        replace_file(path) as stream,
    ):

        def write(runs: Iterator[BenchRun]) -> int:
            stream.seek(0)
            stream.truncate()
            written = _Counted(runs, stage)
            for line in lines(written):
                stream.write(line.encode())
            return written.count

        count = visit_bench_runs(store, write)
        stage.result = counted(count, "run")
        return Transfer(path, str(store), count, 0)


class _Counted:
    """Iterate over runs, count them and report progress."""

    def __init__(self, runs: Iterator[BenchRun], stage: Stage) -> None:
        self.count = 0
        self._runs = runs
        self._stage = stage

    def __iter__(self) -> Iterator[BenchRun]:
        for run in self._runs:
            yield run
            self.count += 1
            if self.count % _RUNS_A_STEP == 0:
                self._stage.advance(_RUNS_A_STEP)


def import_results(path: Path, url: str | None = None, events: Events = SILENT) -> Transfer:
    """Import the new runs of a file, or none if one of them is invalid."""
    from edgekit.store.bench_runs import save_bench_runs
    from edgekit.store.documents import from_document

    with events.stage("read the file"), storage_errors("import results", path):
        if path.stat().st_size > LARGEST_IMPORT:
            raise InputError(f"{path} is too large for a file of results", hint="check the path")
        data = path.read_bytes()
    try:
        runs = from_document(read_json(data))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is no JSON document", hint="`edgekit results export FILE.json` writes one"
        ) from error
    with opened_store(url) as store, events.stage("import the results") as stage:
        new = save_bench_runs(store, runs)
        stage.result = counted(new, "new run")
        return Transfer(path, str(store), len(runs), new)


def _csv_lines(runs: Iterable[BenchRun]) -> Iterator[str]:
    writer: csv.DictWriter[str] | None = None
    stream = io.StringIO()
    for run in runs:
        row = _csv_row(run)
        if writer is None:
            writer = csv.DictWriter(stream, list(row))
            writer.writeheader()
        writer.writerow({key: csv_cell(value) for key, value in row.items()})
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()


def _csv_row(run: BenchRun) -> dict[str, object]:
    row = dict(vars(run))
    for key in ("build", "conditions", "samples", "profile"):
        del row[key]
    row["notes"] = "; ".join(run.notes)
    build = {**vars(run.build), "offload": " ".join(run.build.offload)}
    return {**row, "runs": len(run.samples), **build, **vars(run.conditions)}
