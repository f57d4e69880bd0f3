"""Evaluations in the store: the accuracy of builds on data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields

from sqlalchemy import Connection, RowMapping

from edgekit.base.decode import DecodeError, decode, encode
from edgekit.base.errors import InputError
from edgekit.base.json_reader import read_json
from edgekit.store.bench_runs import RunFilter, narrowed
from edgekit.store.builds import build_from, ids_of, with_build_and_device
from edgekit.store.database import Store, read
from edgekit.store.rows import insert_missing
from edgekit.store.runs import AccuracyFigure, Evaluation
from edgekit.store.tables import builds, evaluations

_PLAIN = tuple(
    field.name for field in fields(Evaluation) if field.name not in ("build", "device", "figures")
)
_COLUMNS = [evaluations.c[name] for name in (*_PLAIN, "figures")]


def save_evaluation(connection: Connection, evaluation: Evaluation) -> int:
    """Save an evaluation within a transaction. Return 1 if it was new."""
    values = {name: getattr(evaluation, name) for name in _PLAIN}
    values |= ids_of(connection, evaluation.build, evaluation.device)
    values["figures"] = json.dumps(encode(evaluation.figures))
    return insert_missing(connection, evaluations, values)


def list_evaluations(store: Store, chosen: RunFilter) -> tuple[Evaluation, ...]:
    """List evaluations, latest first."""
    query = narrowed(with_build_and_device(evaluations, _COLUMNS), chosen)
    query = query.order_by(evaluations.c.measured_at.desc(), evaluations.c.id).limit(chosen.limit)
    return read(store, lambda c: tuple(_from_row(row) for row in c.execute(query).mappings()))


def last_evaluations(store: Store, digests: Iterable[str]) -> dict[str, Evaluation]:
    """Return the latest evaluation of each build that has one, by the build's digest."""
    query = with_build_and_device(evaluations, _COLUMNS)
    query = query.where(builds.c.digest.in_(sorted(set(digests))))
    query = query.order_by(evaluations.c.measured_at)

    def newest(connection: Connection) -> dict[str, Evaluation]:
        found = (_from_row(row) for row in connection.execute(query).mappings())
        return {one.build.digest: one for one in found}

    return read(store, newest)


def _from_row(row: RowMapping) -> Evaluation:
    try:
        figures = decode(tuple[AccuracyFigure, ...], read_json(row["figures"]), "figures")
    except (ValueError, DecodeError) as error:
        raise InputError(
            f"the figures of a stored evaluation can't be read: {error}",
            hint="the store is damaged: restore a copy",
        ) from error
    return Evaluation(
        **{name: row[name] for name in _PLAIN},
        build=build_from(row),
        device=row["device"],
        figures=figures,
    )
