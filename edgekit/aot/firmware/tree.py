"""A model's C tree as the firmware needs it, read from its header."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import BuildError
from edgekit.base.files import storage_errors

_RUN = re.compile(r"^int ([A-Za-z_][A-Za-z0-9_]*)_run\(", re.MULTILINE)
_MACRO = re.compile(
    r"^#define ([A-Za-z_][A-Za-z0-9_]*)_(ARENA_BYTES|INPUTS|OUTPUTS) \(?([0-9]+)[uU]?\)?\s*$",
    re.MULTILINE,
)
_LARGEST_HEADER = 4 << 20


@dataclass(frozen=True)
class CTree:
    folder: Path
    name: str
    """The prefix of its functions, and the name of its header."""
    macros: str
    """The prefix of its macros."""
    arena: int
    inputs: int
    outputs: int

    @property
    def sources(self) -> tuple[Path, ...]:
        return tuple(sorted(self.folder.glob("*.c")))

    @property
    def library_sources(self) -> tuple[Path, ...]:
        return tuple(sorted((self.folder / "lib").rglob("*.c")))

    @property
    def includes(self) -> tuple[Path, ...]:
        """The include folders: the model's, and each library's folder with its subfolders."""
        libraries = sorted(path for path in (self.folder / "lib").glob("*") if path.is_dir())
        inside = [path for library in libraries for path in library.iterdir() if path.is_dir()]
        holding = [path for path in inside if any(path.rglob("*.h"))]
        return (self.folder, *libraries, *sorted(holding))


def read_tree(folder: Path) -> CTree:
    """Read the tree; raise BuildError where the folder is no C tree of edgekit."""
    with storage_errors("read the model's header", folder):
        headers = [
            file for file in sorted(folder.glob("*.h")) if file.stat().st_size < _LARGEST_HEADER
        ]
        texts = {file.stem: file.read_text(encoding="utf-8", errors="replace") for file in headers}
    for stem, text in texts.items():
        names = _RUN.findall(text)
        if names != [stem]:
            continue
        numbers = {key: (prefix, int(value)) for prefix, key, value in _MACRO.findall(text)}
        if len(numbers) == 3:
            macros = numbers["ARENA_BYTES"][0]
            return CTree(
                folder,
                stem,
                macros,
                arena=numbers["ARENA_BYTES"][1],
                inputs=numbers["INPUTS"][1],
                outputs=numbers["OUTPUTS"][1],
            )
    raise BuildError(
        f"{folder} holds no model in C: none of its headers declares one",
        hint="build the model again",
    )
