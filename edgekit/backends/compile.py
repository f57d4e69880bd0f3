"""Compile regions with the board's C++ compiler, and collect the libraries to link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.base import OptionValue
from edgekit.backends.codegen import RegionFiles
from edgekit.backends.plan import chosen_backend
from edgekit.backends.source import INCLUDE
from edgekit.base.errors import BuildError
from edgekit.base.wording import few
from edgekit.cross.runtime import ffi_headers
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.cross.tools import run_tool

if TYPE_CHECKING:
    from edgekit.base.events import Events
    from edgekit.cross.link import Linker
    from edgekit.cross.sources import BuiltLibrary
    from edgekit.cross.toolchain import Compiler
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain

_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-c")


@dataclass(frozen=True)
class CompiledRegions:
    names: tuple[str, ...]
    """Object files in the scratch folder."""
    libraries: tuple[str, ...]
    """Libraries to link with, in order."""
    beside: tuple[Path, ...]
    """Shared libraries that the model's library loads from its own folder."""
    compiler: Compiler
    """The compiler that must link, because it knows where the C++ runtime library is."""


@dataclass(frozen=True)
class Workbench:
    """A board, and what compiles code for it."""

    board: Board
    toolchain: Toolchain
    linker: Linker
    scratch: Path
    events: Events
    options: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    """The options by backend that differ from its defaults."""
    with_runtime: bool = False
    """Whether TVM's virtual machine calls the regions."""


def compile_regions(regions: Sequence[RegionFiles], bench: Workbench) -> CompiledRegions:
    """Compile with the flags of the board's linker; BuildError names the region that fails."""
    compiler = find_cxx_compiler(bench.toolchain)
    libraries: dict[str, BuiltLibrary] = {}
    includes: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(region.backend for region in regions):
        backend, _ = chosen_backend(name, bench.options.get(name, {}))
        library = backend.library(bench.board, bench.toolchain, bench.events)
        folders = [ffi_headers(), *(library.include if library else ())]
        own = [INCLUDE, *([backend.include] if backend.include else ())]
        includes[name] = (
            *(word for folder in own for word in ("-I", str(folder))),
            *(word for folder in folders for word in ("-isystem", str(folder))),
        )
        if library is not None:
            libraries[name] = library
    objects: list[str] = []
    interface = ("-DEDGEKIT_WITH_TVM",) if bench.with_runtime else ()
    with bench.events.stage("compile the regions", total=len(regions)) as stage:
        for region in regions:
            for source in (region.source, *region.blobs):
                made = f"{Path(source).stem}.o"
                command = (
                    *compiler.command,
                    *bench.linker.compile_flags,
                    *((*_FLAGS, *interface) if source == region.source else ("-c",)),
                    *includes[region.backend],
                    *("-o", made, source),
                )
                try:
                    run_tool(command, folder=bench.scratch, doing="compile a region")
                except BuildError as error:
                    raise BuildError(
                        f"the region {region.symbol} of {few(region.layers)} that the backend "
                        f"{region.backend} wrote does not compile",
                        hint=_advice(libraries.get(region.backend)),
                        details=error.details,
                    ) from error
                objects.append(made)
            stage.advance()
    linked = tuple(str(word) for library in libraries.values() for word in library.link)
    beside = tuple(path for library in libraries.values() for path in library.run_time)
    if beside:
        # A symbol that another version of them lacks is reported when the model is loaded.
        linked = (*linked, "-Wl,-rpath,$ORIGIN", "-Wl,-z,now")
    return CompiledRegions(tuple(objects), linked, beside, compiler)


def _advice(library: BuiltLibrary | None) -> str:
    if library is not None and library.own:
        return (
            f"the library is your own, in {library.folder}: docs/libraries.md says which version "
            "the backend was written for"
        )
    return (
        "keep its operators in TVM with [offload] never, and report the model to the author of "
        "the backend"
    )
