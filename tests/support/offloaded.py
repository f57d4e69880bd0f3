"""Models with everything in a backend that it takes, run as a deployment runs them. Labs compute
the regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.backends.base import Options, Region
from edgekit.backends.offloading import compile_model
from edgekit.backends.partition import Selection
from edgekit.backends.plan import options_of
from edgekit.backends.registry import load_backend
from edgekit.models.model import Model
from edgekit.profiles.board import load_board
from edgekit.profiles.offload import Rates
from support.deployed import RegionInLab, run_deployed
from support.region_lab import Runs

EVERYTHING_PAYS = Rates(call_us=-1e12)
"""A region is worth its boundary, whatever it saves."""


def selection_for(backend: str, **options: object) -> Selection:
    loaded = load_backend(backend)
    return Selection(((loaded, options_of(loaded, options)),), rates=EVERYTHING_PAYS)


@dataclass(frozen=True)
class Offloaded:
    outputs: list[np.ndarray]
    regions: tuple[Region, ...]
    left: tuple[str, ...]
    """Operators that stayed in TVM, with the reason."""
    labs: tuple[RegionInLab, ...]

    @property
    def runners(self) -> tuple[Runs, ...]:
        """The regions in labs of this process: those that computed the outputs have ended."""
        return tuple(lab.make(lab.region, lab.options) for lab in self.labs)


def run_offloaded(
    model: Model,
    inputs: Sequence[np.ndarray],
    selection: Selection,
    make: Callable[[Region, Options], Runs],
) -> Offloaded:
    """Run the model with everything in the backend that it takes, and TVM's kernels for the
    rest."""
    target = load_board("local").target
    compiled = compile_model(model, target, offload=selection, linked=True)
    options = selection.backends[0][1]
    labs = tuple(RegionInLab(make, region, options) for region in compiled.regions)
    return Offloaded(
        run_deployed(compiled, inputs, labs=labs),
        compiled.regions,
        tuple(f"{d.operator}: {d.reason}" for d in compiled.decisions if d.backend is None),
        labs,
    )
