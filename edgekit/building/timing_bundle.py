"""Makes a bundle of a candidate that a device times, without expected outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.events import SILENT
from edgekit.base.tensors import TensorSpec
from edgekit.building.build import link_model, write_bundle
from edgekit.building.compilation import CompiledModel
from edgekit.building.expectation import Expectation
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import LIBRARY_NAME, Bundle, Vector, open_bundle
from edgekit.bundle.manifest_vectors import RANDOM
from edgekit.cross.toolchain import Compiler

if TYPE_CHECKING:
    from edgekit.base.arrays import Array


def timing_bundle(
    request: BuildRequest,
    compiler: Compiler,
    name: str,
    compiled: CompiledModel,
    ends: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    inputs: Mapping[str, Array],
    folder: Path,
) -> Bundle:
    """Make a bundle in `folder` from the objects in its folder `objects`."""
    made = folder / "bundle"
    made.mkdir()
    request = replace(request, source=replace(request.source, path=Path(name)), preprocess={})
    linked = link_model(
        compiled, request, compiler, folder / "objects", made / LIBRARY_NAME, SILENT
    )
    expectation = Expectation(None, (Vector(RANDOM, inputs, {}, {}),))
    write_bundle(request, compiler, made, linked, ends, expectation, ((), ()), reproducible=False)
    return open_bundle(made)
