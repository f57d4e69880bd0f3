"""Benchmark runs in the store, with the model, build, device and conditions of each."""

from __future__ import annotations

import array
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Select, func, select

from edgekit.base.decode import decode_json, encode
from edgekit.base.errors import InputError
from edgekit.base.json_reader import read_json
from edgekit.store.builds import build_from, ids_of, with_build_and_device
from edgekit.store.database import Store, read, write
from edgekit.store.rows import Named, insert_missing, only_one, select_named
from edgekit.store.run_profile import RunProfile
from edgekit.store.runs import MOST_SAMPLES, BenchRun, Conditions
from edgekit.store.tables import bench_runs, builds, devices, models

T = TypeVar("T")

_AT_A_TIME = 500
_MOST_EARLIER = 20
_NAMED = Named("run", listed_by="edgekit results list", made_by="edgekit bench BUNDLE")


@dataclass(frozen=True)
class RunFilter:
    """The runs to list; None selects all."""

    model: str | None = None
    board: str | None = None
    device: str | None = None
    limit: int = 50
    model_sha256: str | None = None


def save_bench_runs(store: Store, runs: Sequence[BenchRun]) -> int:
    """Save all runs or none. Return how many were new."""
    return write(store, lambda connection: sum(_save(connection, run) for run in runs))


def list_bench_runs(store: Store, chosen: RunFilter) -> tuple[BenchRun, ...]:
    """List runs without their samples, latest first."""
    query = narrowed(_joined(samples=False), chosen)
    query = query.order_by(bench_runs.c.measured_at.desc(), bench_runs.c.id).limit(chosen.limit)
    return _rows(store, query)


def narrowed(query: Select[Any], chosen: RunFilter) -> Select[Any]:
    """Narrow a query with builds and devices to what a filter selects."""
    for column, value in (
        (models.c.name, chosen.model),
        (models.c.sha256, chosen.model_sha256),
        (builds.c.board, chosen.board),
        (devices.c.name, chosen.device),
    ):
        if value is not None:
            query = query.where(column == value)
    return query


def visit_bench_runs(store: Store, visit: Callable[[Iterator[BenchRun]], T]) -> T:
    """Pass all runs with their samples to `visit`, oldest first, with few in memory at a time.

    `visit` is called again if the connection breaks.
    """
    query = _joined(samples=True).order_by(bench_runs.c.measured_at, bench_runs.c.id)

    def attempt(connection: Connection) -> T:
        streaming = connection.execution_options(yield_per=_AT_A_TIME)
        return visit(_from_row(row) for row in streaming.execute(query).mappings())

    return read(store, attempt)


def count_bench_runs(store: Store) -> int:
    """Count the runs in a store."""
    query = select(func.count()).select_from(bench_runs)
    return read(store, lambda connection: int(connection.execute(query).scalar_one()))


def find_bench_run(store: Store, name: str) -> BenchRun:
    """Find a run by its id, by the beginning of its id, or as `latest`.

    Raise UsageError if no run has that name, or several.
    """
    query = _joined(samples=True)
    named = select_named(query, bench_runs.c.id, bench_runs.c.measured_at, name)
    found = () if named is None else _rows(store, named)
    return only_one(found, name, _NAMED)


def last_run_of(store: Store, digest: str, *, profiled: bool) -> BenchRun | None:
    """Return the latest run of a bundle, or its latest with a profile; None if there is none."""
    query = _joined(samples=True).where(builds.c.digest == digest)
    if profiled:
        query = query.where(bench_runs.c.profile.is_not(None))
    found = _rows(store, query.order_by(bench_runs.c.measured_at.desc()).limit(1))
    return found[0] if found else None


def runs_before(store: Store, run: BenchRun) -> tuple[BenchRun, ...]:
    """List earlier runs of the same model on the same board and device, measured by the same kind
    of measurer in the same unit, latest first."""
    query = (
        _joined(samples=True)
        .where(
            models.c.name == run.build.model,
            builds.c.board == run.build.board,
            devices.c.name == run.device,
            bench_runs.c.unit == run.unit,
            bench_runs.c.measured_by.is_not_distinct_from(run.measured_by),
            bench_runs.c.measured_at < run.measured_at,
        )
        .order_by(bench_runs.c.measured_at.desc())
        .limit(_MOST_EARLIER)
    )
    return _rows(store, query)


def _rows(store: Store, query: Select[Any]) -> tuple[BenchRun, ...]:
    return read(
        store,
        lambda connection: tuple(
            _from_row(row) for row in connection.execute(query).mappings().all()
        ),
    )


_APART = {"build", "device", "conditions", "notes", "samples", "profile"}
_PLAIN = tuple(field.name for field in fields(BenchRun) if field.name not in _APART)
"""The fields that a column holds as they are."""
_CONDITIONS = tuple(field.name for field in fields(Conditions))


def _joined(*, samples: bool) -> Select[Any]:
    columns = [bench_runs.c[name] for name in (*_PLAIN, *_CONDITIONS, "notes")]
    if samples:
        columns += [bench_runs.c.samples, bench_runs.c.profile]
    return with_build_and_device(bench_runs, columns)


def _from_row(row: RowMapping) -> BenchRun:
    return BenchRun(
        **{name: row[name] for name in _PLAIN},
        build=build_from(row),
        device=row["device"],
        conditions=Conditions(**{name: row[name] for name in _CONDITIONS}),
        notes=tuple(read_json(row["notes"])),
        samples=unpack(row["samples"]) if "samples" in row else (),
        profile=_profile_from(row.get("profile")),
    )


def _save(connection: Connection, run: BenchRun) -> int:
    values = {name: getattr(run, name) for name in _PLAIN}
    values |= asdict(run.conditions)
    values |= {
        **ids_of(connection, run.build, run.device),
        "notes": json.dumps(run.notes),
        "samples": pack(run.samples),
        "profile": None if run.profile is None else json.dumps(encode(run.profile)),
    }
    return insert_missing(connection, bench_runs, values)


def _profile_from(text: str | None) -> RunProfile | None:
    if text is None:
        return None
    try:
        return decode_json(RunProfile, text)
    except ValueError as error:
        raise InputError(
            f"the profile of a stored run can't be read: {error}",
            hint="the store is damaged: restore a copy",
        ) from error


def pack(samples: Sequence[int]) -> bytes:
    """Compress samples as little-endian 64-bit numbers: 100,000 take about 200 KiB."""
    numbers = array.array("q", samples)
    if sys.byteorder == "big":
        numbers.byteswap()
    return zlib.compress(numbers.tobytes(), 6)


def unpack(data: bytes) -> tuple[int, ...]:
    """Decompress samples; raise InputError for damaged data."""
    try:
        decompressor = zlib.decompressobj()
        plain = decompressor.decompress(data, 8 * MOST_SAMPLES + 8)
        if len(plain) > 8 * MOST_SAMPLES or len(plain) % 8 or not decompressor.eof:
            raise ValueError("the size is wrong")
    except (zlib.error, ValueError) as error:
        raise InputError(
            f"the samples of a stored run can't be read: {error}",
            hint="the store is damaged: restore a copy",
        ) from error
    numbers = array.array("q", plain)
    if sys.byteorder == "big":
        numbers.byteswap()
    return tuple(numbers)
