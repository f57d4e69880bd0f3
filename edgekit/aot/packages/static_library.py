"""libNAME.a and NAME.h: a model to link without compiling."""

from __future__ import annotations

from pathlib import Path

from edgekit.aot.packages.compiled import CompiledTree, copy_into, write_text
from edgekit.base.errors import MissingToolError
from edgekit.base.options import option
from edgekit.cross.toolchain import which
from edgekit.cross.tools import run_tool
from edgekit.profiles.toolchain import Toolchain

STATIC_LIBRARY_FOLDER = "static-lib"


def find_archiver(toolchain: Toolchain) -> tuple[str, ...]:
    """Return the command of the toolchain's `ar`."""
    tool = toolchain.tools.ar
    if tool is None:
        raise MissingToolError(
            f"the toolchain {toolchain.name} names no program that makes static libraries",
            hint=f"name its ar in {toolchain.origin}, or leave {option('format', 'static-lib')} "
            "out",
        )
    found = which(tool)
    if found is None:
        raise MissingToolError(
            f"the toolchain {toolchain.name} needs {tool}, which is not installed",
            hint=toolchain.install.command(),
        )
    return (str(found), *tool.split()[1:])


def write_static_library(compiled: CompiledTree, folder: Path, scratch: Path) -> tuple[str, ...]:
    """Write into the bundle's folder; members are named after their sources."""
    target = folder / STATIC_LIBRARY_FOLDER
    name, library = compiled.name, f"lib{compiled.name}.a"
    members = scratch / "members"
    names = []
    for index, (source, made) in enumerate(
        zip(compiled.tree.sources, compiled.objects, strict=True)
    ):
        member = f"{Path(source).stem}.o"
        names.append(f"{index}_{member}" if member in names else member)
        copy_into(made, members / names[-1])
    # D: no times, no owners.
    run_tool(
        [*find_archiver(compiled.toolchain), "rcsD", library, *names],
        folder=members,
        doing="make the static library",
    )
    copy_into(members / library, target / library)
    copied = (f"{name}.h", *compiled.licenses)
    for path in copied:
        copy_into(compiled.tree.folder / path, target / path)
    write_text(target / "README.md", _readme(compiled))
    return tuple(f"{STATIC_LIBRARY_FOLDER}/{path}" for path in (library, "README.md", *copied))


def _readme(compiled: CompiledTree) -> str:
    name = compiled.name
    return f"""\
# lib{name}.a

Compiled by {compiled.compiler.banner} for {compiled.board.cpu.name}:

    {" ".join(compiled.flags)}

Programs that link it must use the same CPU, FPU and float ABI. `{name}.h` is the whole interface:

    #include "{name}.h"

    ... -I{STATIC_LIBRARY_FOLDER} main.c -L{STATIC_LIBRARY_FOLDER} -l{name} -lm

`c/README.md` next to this folder has an example, and the C that it was compiled from.
"""
