"""What measured records that are older than the field for it: what they tell by themselves.

Where they tell nothing, the measurer is None, which stands for unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, text

from edgekit.base.measurer import Measurer, Unit

_FIELD = "measured_by"
_THIS_HOST = "local"
"""The device's name that only the host itself has."""
_OF_TWINS = " (twin)"
"""The end of the board's name under which costs on twins are recorded."""


def of_run(unit: object, device: object) -> Measurer | None:
    """Tell what measured a run: only emulators count instructions, and only real cores cycles."""
    if unit == "instructions":
        return "emulator"
    return "hardware" if unit == "cycles" or device == _THIS_HOST else None


def of_cost(board: object) -> Measurer:
    """Tell what measured a region: costs on twins have a name of their own."""
    return "emulator" if str(board).endswith(_OF_TWINS) else "hardware"


def of_session(target: object, devices: int) -> tuple[Measurer | None, Unit]:
    """Tell what a search measured with, from its target, and in which unit.

    A target that is not an emulated one may have had twins among several devices.
    """
    try:
        said = json.loads(str(target))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return None, "seconds"
    if said.get("counted in") == "instructions":
        return "emulator", "instructions"
    if "emulated" in said:
        return "emulator", "seconds"
    return "hardware" if "counted in" in said or devices == 1 else None, "seconds"


def with_measurer(run: object) -> object:
    """Add the measurer to a run as JSON that lacks it, the largest sizes, and no profile."""
    if not isinstance(run, Mapping):
        return run
    return {_FIELD: of_run(run.get("unit"), run.get("device")), "sizes": "", "profile": None, **run}


def session_with_measurer(session: object) -> object:
    """Add the measurer and the unit to a session as JSON that lacks them."""
    if not isinstance(session, Mapping) or _FIELD in session:
        return session
    devices = session.get("devices")
    count = len(devices) if isinstance(devices, Sequence) else 0
    measurer, unit = of_session(session.get("target"), count)
    return {**session, _FIELD: measurer, "unit": unit}


def regions_with_measurer(regions: object) -> object:
    """Add the measurer to costs of regions as JSON that lack it."""
    if not isinstance(regions, (list, tuple)):
        return regions
    return [
        {**cost, _FIELD: of_cost(cost.get("board"))}
        if isinstance(cost, Mapping) and _FIELD not in cost
        else cost
        for cost in regions
    ]


def fill_measurers(connection: Connection) -> None:
    """Write the measurers of all records of a store that has none."""
    kinds = connection.execute(
        text(
            "SELECT DISTINCT bench_runs.unit, devices.id, devices.name FROM bench_runs"
            " JOIN devices ON devices.id = bench_runs.device_id"
        )
    ).all()
    _update(
        connection,
        "UPDATE bench_runs SET measured_by = :measurer"
        " WHERE unit = :unit AND device_id = :device AND measured_by IS NULL",
        [
            {"measurer": of_run(unit, name), "unit": unit, "device": number}
            for unit, number, name in kinds
        ],
    )
    boards = connection.execute(text("SELECT DISTINCT board FROM region_costs")).scalars().all()
    _update(
        connection,
        "UPDATE region_costs SET measured_by = :measurer"
        " WHERE board = :board AND measured_by IS NULL",
        [{"measurer": of_cost(board), "board": board} for board in boards],
    )
    sessions = connection.execute(text("SELECT id, target, devices FROM tuning_sessions")).all()
    changes = []
    for name, target, devices in sessions:
        measurer, unit = of_session(target, len(json.loads(devices)))
        changes.append({"measurer": measurer, "unit": unit, "id": name})
    _update(
        connection,
        "UPDATE tuning_sessions SET measured_by = :measurer, unit = :unit"
        " WHERE id = :id AND measured_by IS NULL",
        changes,
    )


def _update(connection: Connection, statement: str, changes: list[dict[str, object]]) -> None:
    if changes:
        connection.execute(text(statement), changes)
