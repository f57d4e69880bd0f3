"""Links TVM's compiled code into a shared library with the board's compiler."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import StorageError
from edgekit.base.files import (
    copy_tree,
    exclusive_lock,
    replace_directory,
    sha256_bytes,
    sha256_file,
    storage_errors,
)
from edgekit.base.paths import cache_dir
from edgekit.cross.tools import run_tool

if TYPE_CHECKING:
    from edgekit.cross.toolchain import Compiler
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain


@dataclass(frozen=True)
class LibraryForm:
    """The kind of file that a linker makes."""

    name: str
    """The file's name in a bundle."""
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    """The same objects give the same bytes, without anything that the device does not need."""


SHARED_LIBRARY = LibraryForm(
    "model.so", ("-fPIC",), ("-shared", "-fPIC", "-Wl,--build-id=none", "-Wl,--strip-all")
)
WASM_MODULE = LibraryForm(
    "model.wasm", (), ("-mexec-model=reactor", "-Wl,--strip-all", "-Wl,-z,stack-size=1048576")
)


@dataclass(frozen=True)
class Linker:
    """A board's compiler and its constant flags."""

    compiler: Compiler
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    form: LibraryForm = SHARED_LIBRARY

    @classmethod
    def for_board(cls, board: Board, toolchain: Toolchain, compiler: Compiler) -> Linker:
        """Make the linker of a board."""
        sysroot = (f"--sysroot={toolchain.sysroot}",) if toolchain.sysroot else ()
        return cls(
            compiler,
            (*sysroot, *toolchain.compile_flags, *toolchain.spelled(board.cpu.compile_flags)),
            toolchain.link_flags,
            WASM_MODULE if board.in_engine else SHARED_LIBRARY,
        )

    def command(self, output: str, objects: Objects) -> tuple[str, ...]:
        """Return the command line that links objects into `output`."""
        return (
            *self.compiler.command,
            *self.form.link_flags,
            *self.compile_flags,
            *objects.options,
            *("-o", output),
            *(word for name in objects.names for word in _input(name)),
            *objects.libraries,
            *self.link_flags,
        )


@dataclass(frozen=True)
class Objects:
    """The input of a linker."""

    names: tuple[str, ...]
    """Object files, and regions as source. Paths are relative to the scratch folder, because
    compilers may write them into the output."""
    options: tuple[str, ...]
    """The options that locate the source's headers."""
    libraries: tuple[str, ...] = ()
    """Static libraries and linker flags, in order."""
    fixed: tuple[Path, ...] = ()
    """C sources that are the same for every model, in one folder: compiled once for a board."""

    def with_sources(self, names: tuple[str, ...], headers: Path) -> Objects:
        """Add sources in the scratch folder that include from `headers`."""
        if not names:
            return self
        options = (*self.options, "-isystem", str(headers))
        return replace(self, names=(*self.names, *names), options=tuple(dict.fromkeys(options)))

    def with_libraries(self, names: Sequence[str], libraries: Sequence[str]) -> Objects:
        """Add object files and their libraries.

        The libraries' symbols stay hidden: two models in one process may bring two versions.
        """
        hidden = ("-Wl,--exclude-libs,ALL",) if libraries else ()
        return replace(
            self,
            names=(*self.names, *names),
            libraries=(*self.libraries, *libraries, *hidden),
        )


def export_objects(executable: Any, triple: str, scratch: Path) -> Objects:
    """Write the objects of a TVM executable into the scratch folder."""
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
    """Link objects in the scratch folder; raise BuildError if that fails."""
    linked = scratch / linker.form.name
    objects = _with_fixed(objects, linker, scratch)
    run_tool(linker.command(linked.name, objects), folder=scratch, doing="link the library")
    with storage_errors("write the library", library):
        shutil.copyfile(linked, library)


def _with_fixed(objects: Objects, linker: Linker, scratch: Path) -> Objects:
    """Put the objects of the fixed sources into the scratch folder, made once."""
    if not objects.fixed:
        return objects
    options = ("-c", *linker.form.compile_flags, "-O2", "-fvisibility=hidden")
    command = (*linker.compiler.command, *options, *linker.compile_flags)
    place = objects.fixed[0].parent
    sums = [f"{file.name} {sha256_file(file)}" for file in sorted(place.iterdir())]
    made = [file.name for file in objects.fixed]
    key = sha256_bytes("\n".join((linker.compiler.banner, *command, *sums, *made)).encode())
    final = cache_dir() / "objects" / key
    names = tuple(f"{file.stem}.o" for file in objects.fixed)
    with storage_errors("compile the program", scratch):
        if final.is_dir():
            for name in names:
                shutil.copyfile(final / name, scratch / name)
        else:
            work = scratch / "fixed"
            copy_tree(place, work)
            for file, name in zip(objects.fixed, names, strict=True):
                words = (*command, *_input(file.name), "-o", name)
                run_tool(words, folder=work, doing=f"compile {file.name}")
                shutil.copyfile(work / name, scratch / name)
            _keep(scratch, names, final)
    return replace(objects, names=(*objects.names, *names), fixed=())


def _keep(folder: Path, names: Sequence[str], final: Path) -> None:
    """Put files into the cache; a cache that takes nothing costs time only."""
    with suppress(StorageError, OSError), storage_errors("keep compiled sources", final):
        final.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(final.with_suffix(".lock")):
            if not final.is_dir():
                with replace_directory(final) as made:
                    for name in names:
                        shutil.copyfile(folder / name, made / name)


def _input(name: str) -> tuple[str, ...]:
    """Mark a C source as C: a linking C++ compiler would mangle its names."""
    return ("-x", "c", name, "-x", "none") if name.endswith(".c") else (name,)


def _relative(name: str, folder: Path) -> str:
    path = Path(name)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else name
