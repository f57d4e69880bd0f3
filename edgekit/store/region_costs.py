"""What regions cost, in the store: for each board and version of a library the newest."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, text

from edgekit.store.database import Store, read
from edgekit.store.queries import REGION_COSTS, cost_from_row
from edgekit.store.regions import RegionCost
from edgekit.store.rows import insert_or_renew
from edgekit.store.tables import region_costs


def costs_on(store: Store, board: str) -> tuple[RegionCost, ...]:
    def asked(connection: Connection) -> tuple[RegionCost, ...]:
        rows = connection.execute(text(REGION_COSTS), {"board": board}).all()
        return tuple(cost_from_row(row) for row in rows)

    return read(store, asked)


def save_region_cost(connection: Connection, cost: RegionCost) -> None:
    insert_or_renew(connection, region_costs, asdict(cost), newer_by="measured_at")
