"""Estimate whether a region is worth its boundary, when no measurement exists.

A library that the user names is used unless its boundary clearly costs more than it can save."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.backends.base import Region
from edgekit.base.wording import amount, microseconds
from edgekit.profiles.offload import Rates


@dataclass(frozen=True)
class Verdict:
    pays: bool
    reason: str
    saved_us: float


def reckon(region: Region, rates: Rates) -> Verdict:
    """Weigh a region's savings in multiply-accumulates against the cost of its boundary.

    Operators without any (a pooling, a ReLU) move bytes and count as equally fast in TVM: alone
    they never pay, inside a larger region they are included.
    """
    saved = region.macs / 1e3 * (1 / rates.tvm_gmac_s - 1 / rates.library_gmac_s)
    boundary = rates.call_us + region.boundary_bytes / 1e3 / rates.copy_gb_s
    work = f"not measured: {amount(region.macs)} MACs may save {microseconds(saved)}"
    price = f"the boundary costs about {microseconds(boundary)}"
    return Verdict(saved > boundary, f"{work}, {price}", saved - boundary)
