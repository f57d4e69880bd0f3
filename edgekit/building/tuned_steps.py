"""Reads the best measured ways of steps in C from the store for a build."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal

from edgekit.aot.job import OPTIMISATION
from edgekit.aot.ways import VERSION, Way, way_from_json
from edgekit.base.events import SILENT, Events
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import Toolchain
from edgekit.store.lookup import best_records
from edgekit.store.tuning_runs import BestRecord

WORTH_IT = 0.99
"""The largest share of the own way's count that counts as faster. Counts are nearly exact."""

Unit = Literal["cycles", "instructions"]
"""The unit of a count: cycles of a real core or instructions of an emulated one, never mixed."""


def c_target(board: Board, toolchain: Toolchain, unit: Unit) -> str:
    """Return what decides the speed of a step's C, and the unit of its count, as JSON text."""
    return json.dumps(
        {
            "cpu": board.cpu.name,
            "features": sorted(board.cpu.features),
            "compiler": [toolchain.name, *toolchain.compile_flags, OPTIMISATION],
            "flags": list(toolchain.spelled(board.cpu.compile_flags)),
            "counted in": unit,
        },
        sort_keys=True,
    )


def measured_ways(
    board: Board, toolchain: Toolchain, url: str | None = None, events: Events = SILENT
) -> dict[str, Way]:
    """Return the ways that replace the generators' own. Counts of real cores go first."""
    found: dict[str, Way] = {}
    units: tuple[Unit, ...] = ("instructions", "cycles")
    for unit in units:
        target = c_target(board, toolchain, unit)
        records = best_records(target, VERSION, url, events)
        for key in records:
            found.pop(key, None)
        found |= best_ways(records.values())
    return found


def best_ways(records: Iterable[BestRecord]) -> dict[str, Way]:
    """Return the ways that are faster than the generators' own by enough."""
    found = {}
    for record in records:
        way = way_from_json(record.choice)
        is_better = record.own_us is not None and record.best_us < WORTH_IT * record.own_us
        if way is not None and is_better:
            found[record.key] = way
    return found
