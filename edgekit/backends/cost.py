"""Estimate whether a region is worth its boundary, when no measurement exists: by the backend's own
costs if it has any, else by rates.

A library that the user names is used unless its boundary clearly costs more than it can save."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.backends.base import Backend, HasCosts, Options, Region
from edgekit.base.errors import BuildError
from edgekit.base.wording import amount, microseconds
from edgekit.profiles.offload import Rates


@dataclass(frozen=True)
class Verdict:
    pays: bool
    reason: str
    saved_us: float


def estimate(region: Region, rates: Rates, backend: Backend, options: Options) -> Verdict:
    """Judge a region by the backend's own costs, or by the rates if it has none."""
    if not isinstance(backend, HasCosts):
        return reckon(region, rates)
    name = backend.name
    try:
        own = backend.microseconds(region, options)
    except Exception as error:
        raise _failed(name, region, f"{type(error).__name__}: {error}") from error
    if not math.isfinite(own) or own < 0:
        raise _failed(name, region, f"it answered {own}")
    tvm = region.macs / 1e3 / rates.tvm_gmac_s
    work = f"not measured: {amount(region.macs)} MACs may take TVM {microseconds(tvm)}"
    price = f"{name} estimates {microseconds(own)}, and its call {microseconds(rates.call_us)}"
    return Verdict(tvm > own + rates.call_us, f"{work}; {price}", tvm - own - rates.call_us)


def _failed(name: str, region: Region, why: str) -> BuildError:
    return BuildError(
        f"the backend {name} could not estimate the time of the region {region.symbol}: {why}",
        hint="keep some of its operators in TVM with [offload] never, and report the model to the "
        "author of the backend",
    )


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
