"""Makes a bundle of a candidate that a device times, without expected outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.events import SILENT
from edgekit.base.tensors import TensorSpec
from edgekit.base.varying import without_lengths
from edgekit.building.build_manifest import manifest_for
from edgekit.building.expectation import Expectation
from edgekit.building.product import Compiled, Making
from edgekit.building.products import product_of
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import Bundle, Vector, open_bundle, write_manifest
from edgekit.bundle.manifest_vectors import RANDOM
from edgekit.cross.toolchain import Compiler

if TYPE_CHECKING:
    from edgekit.base.arrays import Array


def timing_bundle(
    request: BuildRequest,
    compiler: Compiler,
    compiled: Compiled,
    ends: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    inputs: Mapping[str, Array],
    folder: Path,
) -> Bundle:
    """Make a bundle in `folder` from the objects in its folder `objects`."""
    made = folder / "bundle"
    made.mkdir()
    request = replace(request, source=replace(request.source, ends=request.source.ends.in_program))
    product = product_of(request.board)
    making = Making(product, request, compiler, made, folder / "objects", SILENT)
    expectation = Expectation(None, (Vector(RANDOM, inputs, {}, {}),))
    contents = replace(compiled.finish(making, expectation), expectation=expectation)
    write_manifest(made, manifest_for(making, without_lengths(*ends), contents))
    return open_bundle(made)
