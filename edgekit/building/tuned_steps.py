"""What was measured of steps in C, on microcontrollers, and what a build makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from edgekit.aot.job import OPTIMISATION
from edgekit.aot.ways import VERSION, Way, way_from_json
from edgekit.base.events import SILENT, Events
from edgekit.project.file import store_in_use
from edgekit.store.lookup import best_records
from edgekit.store.tuning_runs import BestRecord

if TYPE_CHECKING:
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain

WORTH_IT = 0.99
"""Of the own way's count: emulated ones are exact, and real cores count cycles."""

Unit = Literal["cycles", "instructions"]
"""Of a real core, or of an emulated one: the two are never compared."""


def c_target(board: Board, toolchain: Toolchain, unit: Unit) -> str:
    """What decides how fast a step's C is, and how that was counted, as JSON text."""
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
    """What a build should do otherwise than its generators would: a real core's word goes before
    an emulated one's."""
    found: dict[str, Way] = {}
    units: tuple[Unit, ...] = ("instructions", "cycles")
    for unit in units:
        target = c_target(board, toolchain, unit)
        known = best_records(target, VERSION, url or store_in_use(), events)
        for key in known:
            found.pop(key, None)
        found |= best_ways(known.values())
    return found


def best_ways(records: Iterable[BestRecord]) -> dict[str, Way]:
    """Those that were worth it."""
    found = {}
    for record in records:
        way = way_from_json(record.choice)
        is_better = record.own_us is not None and record.best_us < WORTH_IT * record.own_us
        if way is not None and is_better:
            found[record.key] = way
    return found
