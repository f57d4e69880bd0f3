"""Makes the manifest of a build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.building.expectation import Expectation, Reference
from edgekit.building.key import installed_version
from edgekit.bundle.folder import (
    SCHEMA_VERSION,
    BareMetal,
    BoardEntry,
    FileEntry,
    InputEntry,
    Kernel,
    Manifest,
    ModelEntry,
    OutputEntry,
    Region,
    RunnerEntry,
    ToolchainEntry,
    Versions,
)
from edgekit.version import __version__

if TYPE_CHECKING:
    from edgekit.building.expectation import Ends
    from edgekit.building.request import BuildRequest
    from edgekit.cross.toolchain import Compiler

_REPRODUCIBLE = (
    "the same model, options, board, compiler and versions give the same library and manifest; "
    "the expected outputs are the oracle's, whose last bits may differ on another kind of CPU"
)
_NOT_REPRODUCIBLE = "the compiler wrote the name of a temporary folder into the library"


def manifest_for(
    request: BuildRequest,
    compiler: Compiler,
    expectation: Expectation,
    ends: Ends,
    reference: Reference,
    *,
    files: tuple[FileEntry, ...],
    regions: tuple[Region, ...] = (),
    runners: tuple[RunnerEntry, ...] = (),
    kernels: tuple[Kernel, ...] = (),
    bare_metal: BareMetal | None = None,
    reproducible: bool,
) -> Manifest:
    """Return the manifest of a bundle of any kind."""
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
        toolchain=ToolchainEntry(request.toolchain.name, compiler.banner),
        versions=Versions(installed_version("apache-tvm"), installed_version("apache-tvm-ffi")),
        oracle=expectation.oracle,
        seed=request.seed,
        inputs=tuple(InputEntry(spec, request.preprocess.get(spec.name)) for spec in ends[0]),
        outputs=tuple(OutputEntry(spec) for spec in ends[1]),
        vectors=reference.vectors,
        left_out=expectation.left_out,
        regions=regions,
        runners=runners,
        kernels=kernels,
        bare_metal=bare_metal,
        files=(*files, *reference.files),
        reproducible=reproducible,
        reproducible_note=_REPRODUCIBLE if reproducible else _NOT_REPRODUCIBLE,
    )
