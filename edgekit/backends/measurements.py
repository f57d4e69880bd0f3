"""Times of regions measured on boards, stored for later builds.

A measurement is keyed by region, board and library version; the region's name covers everything
that it computes, weights and options included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from edgekit.backends.cost import Verdict
from edgekit.base.measurer import beside
from edgekit.base.wording import microseconds
from edgekit.store.address import findings_folder, is_off
from edgekit.store.lookup import region_costs
from edgekit.store.runs import RegionCost

_WORTH_IT = 0.98
"""The largest share of TVM's time that counts as faster: a smaller gain is noise."""


@dataclass(frozen=True)
class Measured(RegionCost):
    """A measurement, and the verdict from it."""

    @property
    def verdict(self) -> Verdict:
        saved = self.tvm_us - self.library_us
        where = f"measured on {beside(self.device, self.measured_by)}"
        if not self.agrees:
            return Verdict(False, f"{where}: its numbers differ from TVM's", saved)
        library, tvm = microseconds(self.library_us), microseconds(self.tvm_us)
        times = f"{library}, in TVM {tvm}"
        pays = self.library_us < _WORTH_IT * self.tvm_us
        return Verdict(pays, f"{where}: {times}", saved)


def read_measurements(
    board: str, versions: Mapping[str, str], url: str | None = None
) -> dict[str, Measured]:
    """Read a board's measurements by region, for the backends' current versions."""
    return {
        cost.region: Measured(**{field.name: getattr(cost, field.name) for field in fields(cost)})
        for cost in region_costs(board, url)
        if versions.get(cost.backend) == cost.version
    }


def measured_backends(board: str, url: str | None = None) -> frozenset[str]:
    """Return the backends with any measurement on such a board, in any version."""
    return frozenset(cost.backend for cost in region_costs(board, url))


def keep_measurement(record: Measured, url: str | None = None) -> None:
    """Store a measurement durably; it replaces one of the same region, board and version."""
    from edgekit.store.findings import Findings
    from edgekit.store.outbox import post_findings

    if not is_off(url):
        post_findings(Findings(regions=(record,)), findings_folder(url))
