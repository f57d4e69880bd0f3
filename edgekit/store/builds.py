"""Builds and devices in the store, which benchmark runs and evaluations share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Column, Connection, RowMapping, Select, Table, select

from edgekit.base.json_reader import read_json
from edgekit.store.rows import id_of
from edgekit.store.runs import BuildFacts
from edgekit.store.tables import builds, devices, models

_OWN = ("board", "target", "compiler", "edgekit_version", "tvm_version")
"""The facts that a column of the table of builds holds as they are, but for the digest."""


def with_build_and_device(table: Table, columns: Sequence[Column[Any]]) -> Select[Any]:
    """Select columns of measurements, with their builds and devices."""
    return (
        select(
            *columns,
            *(builds.c[name] for name in ("digest", "offload", *_OWN)),
            models.c.name.label("model"),
            models.c.sha256.label("model_sha256"),
            devices.c.name.label("device"),
        )
        .join(builds, table.c.build_id == builds.c.id)
        .join(models, builds.c.model_id == models.c.id)
        .join(devices, table.c.device_id == devices.c.id)
    )


def build_from(row: RowMapping) -> BuildFacts:
    """Read the build of a row that `with_build_and_device` selected."""
    facts = {field.name: row[field.name] for field in fields(BuildFacts)}
    facts["offload"] = tuple(read_json(row["offload"]))
    return BuildFacts(**facts)


def ids_of(connection: Connection, build: BuildFacts, device: str) -> Mapping[str, int]:
    """Return the ids of a build and a device; insert what is missing."""
    own = {name: getattr(build, name) for name in _OWN}
    model_id = id_of(connection, models, {"sha256": build.model_sha256}, {"name": build.model})
    others = {"model_id": model_id, "offload": json.dumps(build.offload), **own}
    return {
        "build_id": id_of(connection, builds, {"digest": build.digest}, others),
        "device_id": id_of(connection, devices, {"name": device, "board": build.board}, {}),
    }
