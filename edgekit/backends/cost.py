"""Is a region worth its boundary? A stated rule, where nobody measured."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.backends.base import Region


@dataclass(frozen=True)
class Rates:
    """What the rule reckons with; `[offload.cost]` of a board profile sets them."""

    call_us: float = 5.0
    """To enter a region, whatever its size."""
    copy_gb_s: float = 4.0
    """At which inputs and outputs cross its boundary."""
    tvm_gmac_s: float = 2.0
    """Multiply-accumulates of the code that TVM makes."""
    library_gmac_s: float = 10.0
    """Of the library's layers."""


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
    work = f"{region.macs / 1e6:.3g} million MACs save about {saved:.3g} µs"
    price = f"the boundary costs about {boundary:.3g} µs"
    return Verdict(saved > boundary, f"{work}, {price}", saved - boundary)
