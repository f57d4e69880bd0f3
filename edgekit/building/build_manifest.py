"""Makes the manifest of a build."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edgekit.building.expectation import write_reference
from edgekit.building.key import installed_version
from edgekit.bundle.manifest import (
    SCHEMA_VERSION,
    BoardEntry,
    InputEntry,
    Manifest,
    ModelEntry,
    OutputEntry,
    ToolchainEntry,
    Versions,
)
from edgekit.version import __version__

if TYPE_CHECKING:
    from edgekit.building.expectation import Ends
    from edgekit.building.product import Contents, Making

_REPRODUCIBLE = (
    "the same model, options, board, compiler and versions give the same library and manifest; "
    "the expected outputs are the oracle's, whose last bits may differ on another kind of CPU"
)
_NOT_REPRODUCIBLE = "the compiler wrote the name of a temporary folder into the library"


def manifest_for(making: Making, ends: Ends, contents: Contents) -> Manifest:
    """Write the reference vectors, and return the manifest of the finished bundle."""
    request, expectation = making.request, contents.expectation
    preprocess = request.source.ends.preprocess
    files = tuple(making.folder / file.path for file in contents.files)
    reproducible = all(os.fsencode(making.scratch.name) not in f.read_bytes() for f in files)
    reference = write_reference(making.folder, ends, expectation)
    return Manifest(
        schema_version=SCHEMA_VERSION,
        edgekit_version=__version__,
        model=ModelEntry(
            request.source.name,
            request.source.format,
            request.source.sha256,
            request.source.path.name,
        ),
        board=BoardEntry(request.board.name, request.board.kind),
        target=request.board.target.as_json(),
        toolchain=ToolchainEntry(request.toolchain.name, making.compiler.banner),
        versions=Versions(installed_version("apache-tvm"), installed_version("apache-tvm-ffi")),
        oracle=expectation.oracle,
        seed=request.seed,
        inputs=tuple(InputEntry(spec, preprocess.get(spec.name)) for spec in ends[0]),
        outputs=tuple(OutputEntry(spec) for spec in ends[1]),
        postprocess=request.source.ends.postprocess,
        vectors=reference.vectors,
        left_out=expectation.left_out,
        regions=contents.regions,
        runners=contents.runners,
        kernels=contents.kernels,
        steps=contents.steps,
        arena=contents.arena,
        bare_metal=contents.bare_metal,
        files=(*contents.files, *reference.files),
        reproducible=reproducible,
        reproducible_note=_REPRODUCIBLE if reproducible else _NOT_REPRODUCIBLE,
    )
