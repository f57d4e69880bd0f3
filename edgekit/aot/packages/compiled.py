"""A C tree after the board's compiler: the input of every package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.aot.job import WrittenTree
from edgekit.bundle.manifest_bare_metal import BareMetal
from edgekit.cross.toolchain import Compiler
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import Toolchain

LICENSES = "LICENSES"


@dataclass(frozen=True)
class CompiledTree:
    tree: WrittenTree
    """Complete, with its reference vectors."""
    report: BareMetal
    model_sha256: str
    board: Board
    toolchain: Toolchain
    compiler: Compiler
    flags: tuple[str, ...]
    """The compiler options of the sources for this CPU."""
    objects: tuple[Path, ...]
    """One for each of the tree's sources."""

    @property
    def name(self) -> str:
        return self.report.name

    def files(self, wanted: Callable[[str], bool]) -> tuple[str, ...]:
        """Return the paths inside the tree that are wanted, in the same order on every machine."""
        paths = (path for path in self.tree.folder.rglob("*") if path.is_file())
        relative = sorted(path.relative_to(self.tree.folder).as_posix() for path in paths)
        return tuple(path for path in relative if wanted(path))

    @property
    def licenses(self) -> tuple[str, ...]:
        return self.files(lambda path: path.startswith(f"{LICENSES}/"))


def copy_into(source: Path, target: Path) -> None:
    """Copy the content without any metadata."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


def write_text(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
