"""Benchmark runs with all that is needed to say what they were of."""

from __future__ import annotations

import array
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Select, func, select

from edgekit.base.errors import InputError, UsageError
from edgekit.base.json_reader import read_json
from edgekit.store.database import Store, read, written
from edgekit.store.rows import id_of, insert_missing
from edgekit.store.runs import MOST_SAMPLES, BenchRun, BuildFacts, Conditions
from edgekit.store.tables import bench_runs, builds, devices, models

T = TypeVar("T")

ID_LENGTH = 32
_SHORTEST_PREFIX = 4
_AT_A_TIME = 500


@dataclass(frozen=True)
class Wanted:
    """Which runs; None asks for all."""

    model: str | None = None
    board: str | None = None
    device: str | None = None
    limit: int = 50
    model_sha256: str | None = None


def save_bench_runs(store: Store, runs: Sequence[BenchRun]) -> int:
    """All of them or none. Gives how many were not there yet."""
    return written(store, lambda connection: sum(_save(connection, run) for run in runs))


def list_bench_runs(store: Store, wanted: Wanted) -> tuple[BenchRun, ...]:
    """The latest first, without their samples."""
    query = _joined(samples=False)
    for column, value in (
        (models.c.name, wanted.model),
        (models.c.sha256, wanted.model_sha256),
        (builds.c.board, wanted.board),
        (devices.c.name, wanted.device),
    ):
        if value is not None:
            query = query.where(column == value)
    query = query.order_by(bench_runs.c.measured_at.desc(), bench_runs.c.id).limit(wanted.limit)
    return _rows(store, query)


def visit_bench_runs(store: Store, visit: Callable[[Iterator[BenchRun]], T]) -> T:
    """Hand all runs with their samples to `visit`, the oldest first, a few in memory at a time.

    `visit` is called anew where the connection broke.
    """
    query = _joined(samples=True).order_by(bench_runs.c.measured_at, bench_runs.c.id)

    def attempt(connection: Connection) -> T:
        streaming = connection.execution_options(yield_per=_AT_A_TIME)
        return visit(_from_row(row) for row in streaming.execute(query).mappings())

    return read(store, attempt)


def count_bench_runs(store: Store) -> int:
    query = select(func.count()).select_from(bench_runs)
    return read(store, lambda connection: int(connection.execute(query).scalar_one()))


def find_bench_run(store: Store, name: str) -> BenchRun:
    """By its id or the beginning of it, or `latest`; UsageError where that is none, or several."""
    query = _joined(samples=True)
    if name == "latest":
        query = query.order_by(bench_runs.c.measured_at.desc()).limit(1)
    elif len(name) < _SHORTEST_PREFIX or any(c not in "0123456789abcdef" for c in name.lower()):
        raise UsageError(
            f"{name!r} is no run", hint="`edgekit results list` shows the ids; latest is one too"
        )
    else:
        query = query.where(bench_runs.c.id.startswith(name.lower(), autoescape=True)).limit(2)
    found = _rows(store, query)
    if not found:
        raise UsageError(
            "the store holds no run yet" if name == "latest" else f"there is no run {name}",
            hint="`edgekit bench BUNDLE` makes one"
            if name == "latest"
            else "`edgekit results list` shows the ids",
        )
    if len(found) > 1:
        raise UsageError(f"several runs begin with {name}", hint="write more of the id")
    return found[0]


def runs_before(store: Store, run: BenchRun, limit: int = 20) -> tuple[BenchRun, ...]:
    """Earlier ones of the same model on the same board and device, the latest first."""
    query = (
        _joined(samples=True)
        .where(
            models.c.name == run.build.model,
            builds.c.board == run.build.board,
            devices.c.name == run.device,
            bench_runs.c.unit == run.unit,
            bench_runs.c.measured_at < run.measured_at,
        )
        .order_by(bench_runs.c.measured_at.desc())
        .limit(limit)
    )
    return _rows(store, query)


def _rows(store: Store, query: Select[Any]) -> tuple[BenchRun, ...]:
    return read(
        store,
        lambda connection: tuple(
            _from_row(row) for row in connection.execute(query).mappings().all()
        ),
    )


_PLAIN = (
    "id",
    "measured_at",
    "host",
    "purpose",
    "unit",
    "median",
    "p90",
    "p99",
    "mean",
    "minimum",
    "stdev",
    "warmup",
    "model_peak",
    "process_peak",
    "joules",
)
_CONDITIONS = tuple(field.name for field in fields(Conditions))


def _joined(*, samples: bool) -> Select[Any]:
    columns = [bench_runs.c[name] for name in (*_PLAIN, *_CONDITIONS, "notes")]
    if samples:
        columns.append(bench_runs.c.samples)
    facts = [
        builds.c.digest,
        builds.c.board,
        builds.c.target,
        builds.c.compiler,
        builds.c.offload,
        builds.c.edgekit_version,
        builds.c.tvm_version,
        models.c.name.label("model"),
        models.c.sha256.label("model_sha256"),
        devices.c.name.label("device"),
    ]
    return (
        select(*columns, *facts)
        .join(builds, bench_runs.c.build_id == builds.c.id)
        .join(models, builds.c.model_id == models.c.id)
        .join(devices, bench_runs.c.device_id == devices.c.id)
    )


def _from_row(row: RowMapping) -> BenchRun:
    facts = {field.name: row[field.name] for field in fields(BuildFacts)}
    facts["offload"] = tuple(read_json(row["offload"]))
    return BenchRun(
        **{name: row[name] for name in _PLAIN},
        build=BuildFacts(**facts),
        device=row["device"],
        conditions=Conditions(**{name: row[name] for name in _CONDITIONS}),
        notes=tuple(read_json(row["notes"])),
        samples=unpack(row["samples"]) if "samples" in row else (),
    )


def _save(connection: Connection, run: BenchRun) -> int:
    model_id = id_of(
        connection,
        models,
        {"sha256": run.build.model_sha256},
        {"name": run.build.model},
    )
    facts = asdict(run.build)
    build_id = id_of(
        connection,
        builds,
        {"digest": run.build.digest},
        {
            "model_id": model_id,
            "offload": json.dumps(run.build.offload),
            **{
                name: facts[name]
                for name in ("board", "target", "compiler", "edgekit_version", "tvm_version")
            },
        },
    )
    device_id = id_of(connection, devices, {"name": run.device, "board": run.build.board}, {})
    values = {name: getattr(run, name) for name in _PLAIN}
    values |= asdict(run.conditions)
    values |= {
        "build_id": build_id,
        "device_id": device_id,
        "notes": json.dumps(run.notes),
        "samples": pack(run.samples),
    }
    return insert_missing(connection, bench_runs, values)


def pack(samples: Sequence[int]) -> bytes:
    """Little-endian 64-bit numbers, compressed: a hundred thousand samples are some 200 KiB."""
    numbers = array.array("q", samples)
    if sys.byteorder == "big":
        numbers.byteswap()
    return zlib.compress(numbers.tobytes(), 6)


def unpack(data: bytes) -> tuple[int, ...]:
    try:
        decompressor = zlib.decompressobj()
        plain = decompressor.decompress(data, 8 * MOST_SAMPLES + 8)
        if len(plain) > 8 * MOST_SAMPLES or len(plain) % 8 or not decompressor.eof:
            raise ValueError("of a wrong size")
    except (zlib.error, ValueError) as error:
        raise InputError(
            f"the samples of a stored run can't be read: {error}",
            hint="the store is damaged: restore a copy",
        ) from error
    numbers = array.array("q", plain)
    if sys.byteorder == "big":
        numbers.byteswap()
    return tuple(numbers)
