"""From what waited into the tables, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from edgekit.store.database import Store, written
from edgekit.store.findings import Findings
from edgekit.store.region_costs import save_region_cost
from edgekit.store.tuning import save_records, save_session


def save_findings(store: Store, findings: Sequence[Findings]) -> int:
    """All of them in one transaction. Gives how many candidates and regions came with them that
    were not there yet."""

    records = [record for found in findings for record in found.records]
    points = [found.progress for found in findings if found.progress is not None]
    regions = [region for found in findings for region in found.regions]

    def work(connection: Connection) -> int:
        for found in findings:
            if found.session is not None:
                save_session(connection, found.session)
        new = save_records(connection, records, points)
        for region in regions:
            save_region_cost(connection, region)
        return new + len(regions)

    return written(store, work)
