"""Is a region worth its boundary? A stated rule, where nobody measured: whoever names a library
asks for it, and gets it unless entering it would clearly cost more than it could save."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.backends.base import Region
from edgekit.base.wording import amount, duration
from edgekit.profiles.offload import Rates

__all__ = ["Rates", "Verdict", "reckon"]


@dataclass(frozen=True)
class Verdict:
    pays: bool
    reason: str
    saved_us: float


def reckon(region: Region, rates: Rates) -> Verdict:
    """What a region saves by its multiply-accumulates against what its boundary costs.

    Operators without any (a pooling, a ReLU) move bytes, and are taken to be as fast on either
    side: alone they never pay, inside a region they come along.
    """
    saved = region.macs / 1e3 * (1 / rates.tvm_gmac_s - 1 / rates.library_gmac_s)
    boundary = rates.call_us + region.boundary_bytes / 1e3 / rates.copy_gb_s
    work = f"not measured: {amount(region.macs)} MACs may save {duration(saved / 1e6)}"
    price = f"the boundary costs about {duration(boundary / 1e6)}"
    return Verdict(saved > boundary, f"{work}, {price}", saved - boundary)
