"""From TVM's compiled code to a shared library, through the board's own compiler."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.base.files import storage_errors
from edgekit.cross.tools import run_tool

if TYPE_CHECKING:
    from edgekit.cross.toolchain import Compiler
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain

# The same objects give the same bytes, with nothing in them that the device does not need.
_ALWAYS = ("-shared", "-fPIC", "-Wl,--build-id=none", "-Wl,--strip-all")


@dataclass(frozen=True)
class Linker:
    """A board's compiler and what it is always told."""

    compiler: Compiler
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    @classmethod
    def for_board(cls, board: Board, toolchain: Toolchain, compiler: Compiler) -> Linker:
        sysroot = (f"--sysroot={toolchain.sysroot}",) if toolchain.sysroot else ()
        return cls(
            compiler,
            (*sysroot, *toolchain.compile_flags, *toolchain.spelled(board.cpu.compile_flags)),
            toolchain.link_flags,
        )

    def command(self, output: str, objects: Objects) -> tuple[str, ...]:
        return (
            *self.compiler.command,
            *_ALWAYS,
            *self.compile_flags,
            *objects.options,
            *("-o", output),
            *(word for name in objects.names for word in _input(name)),
            *objects.libraries,
            *self.link_flags,
        )


@dataclass(frozen=True)
class Objects:
    """What TVM hands to a linker."""

    names: tuple[str, ...]
    """Object files, and regions as source, relative to the scratch folder: a compiler may write
    down what it was given."""
    options: tuple[str, ...]
    """Where that source finds its headers."""
    libraries: tuple[str, ...] = ()
    """Static libraries, and flags of the linker's, in order."""

    def with_sources(self, names: tuple[str, ...], headers: Path) -> Objects:
        """These, and sources in the scratch folder that include from `headers`."""
        if not names:
            return self
        options = (*self.options, "-isystem", str(headers))
        return replace(self, names=(*self.names, *names), options=tuple(dict.fromkeys(options)))

    def with_libraries(self, names: Sequence[str], libraries: Sequence[str]) -> Objects:
        """These, and object files with the libraries that they need, which stay inside: two models
        of one process may bring two versions."""
        hidden = ("-Wl,--exclude-libs,ALL",) if libraries else ()
        return replace(
            self,
            names=(*self.names, *names),
            libraries=(*self.libraries, *libraries, *hidden),
        )


def export_objects(executable: Any, triple: str, scratch: Path) -> Objects:
    """Write what `executable` consists of into the scratch folder."""
    exported: list[Objects] = []

    def collect(output: str, objects: Sequence[str], options: Sequence[str] = ()) -> None:
        names = tuple(_relative(name, scratch) for name in objects)
        exported.append(Objects(names, tuple(options)))

    collect.output_format = "so"  # type: ignore[attr-defined]
    collect.get_target_triple = lambda: triple  # type: ignore[attr-defined]
    executable.export_library(
        str(scratch / "model.so"), fcompile=collect, workspace_dir=str(scratch)
    )
    (objects,) = exported
    return objects


def link_shared_library(objects: Objects, linker: Linker, scratch: Path, library: Path) -> None:
    """Link what lies in the scratch folder; BuildError with the compiler's last lines if it
    fails."""
    linked = scratch / "model.so"
    run_tool(linker.command(linked.name, objects), folder=scratch, doing="link the library")
    with storage_errors("write the library", library):
        shutil.copyfile(linked, library)


def _input(name: str) -> tuple[str, ...]:
    """Name a source in C as one: beside regions a C++ compiler links, which would compile it as
    C++ and mangle the names of its functions."""
    return ("-x", "c", name, "-x", "none") if name.endswith(".c") else (name,)


def _relative(name: str, folder: Path) -> str:
    path = Path(name)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else name
