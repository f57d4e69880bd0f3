"""Programs that tests compile: kept in the user's cache, under a hash of all that goes into them.

So each is compiled once, not once in every process of every run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.base.files import exclusive_lock, replace_directory, sha256_bytes, sha256_file
from edgekit.cross.toolchain import Compiler
from edgekit.cross.tools import run_tool
from support.needs import PROGRAMS


def compiled_once(
    name: str,
    compiler: Compiler,
    flags: Sequence[str],
    source: Path,
    include: Sequence[Path],
    link: Sequence[str],
    beside: Mapping[str, Path] | None = None,
) -> Path:
    """The program or library `name` made of one C++ file. Files of `beside` are copied into its
    folder under their names there. `link` names files in folders called after their content."""
    files = beside or {}
    includes = [word for path in include for word in ("-isystem", str(path))]
    words = (*flags, *includes, str(source), *link)
    contents = [sha256_file(file) for file in (source, *files.values())]
    contents += [line for folder in include for line in _contents(folder)]
    key = sha256_bytes("\n".join((compiler.banner, name, *files, *words, *contents)).encode())
    final = PROGRAMS / "compiled" / key
    final.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(final.with_suffix(".lock")):
        if not final.is_dir():
            with replace_directory(final) as folder:
                for file, original in files.items():
                    shutil.copyfile(original, folder / file)
                command = (*compiler.command, *words, "-o", name)
                run_tool(command, folder=folder, doing=f"compile {source.name}")
    return final / name


def _contents(folder: Path) -> list[str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [f"{file.relative_to(folder)} {sha256_file(file)}" for file in files]
