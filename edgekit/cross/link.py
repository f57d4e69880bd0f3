"""From TVM's compiled code to a shared library, through the board's own compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.cross.tools import run_tool

if TYPE_CHECKING:
    from edgekit.board import Board
    from edgekit.cross.toolchain import Compiler, Toolchain

# The same objects give the same bytes, with nothing in them that the device does not need.
_ALWAYS = ("-shared", "-fPIC", "-Wl,--build-id=none", "-Wl,--strip-all")


@dataclass(frozen=True)
class Linker:
    """A board's compiler and what it is always told."""

    compiler: Compiler
    triple: str
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    @classmethod
    def for_board(cls, board: Board, toolchain: Toolchain, compiler: Compiler) -> Linker:
        sysroot = (f"--sysroot={toolchain.sysroot}",) if toolchain.sysroot else ()
        return cls(
            compiler,
            toolchain.triple,
            (*sysroot, *toolchain.compile_flags, *board.cpu.compile_flags),
            toolchain.link_flags,
        )

    def command(self, output: str, objects: Sequence[str]) -> tuple[str, ...]:
        return (
            *self.compiler.command,
            *_ALWAYS,
            *self.compile_flags,
            *("-o", output),
            *objects,
            *self.link_flags,
        )


def link_shared_library(executable: Any, linker: Linker, out: Path, scratch: Path) -> None:
    """Export a compiled Relax executable as `out`; intermediate files go to `scratch`.

    BuildError with the compiler's last lines where it fails.
    """

    def link(output: str, objects: Sequence[str]) -> None:
        # Names relative to the folder it runs in: a compiler may write down what it was given.
        names = [_relative(name, scratch) for name in objects]
        run_tool(linker.command(output, names), folder=scratch, doing="linking the model's library")

    link.output_format = "so"  # type: ignore[attr-defined]
    link.get_target_triple = lambda: linker.triple  # type: ignore[attr-defined]
    executable.export_library(str(out), fcompile=link, workspace_dir=str(scratch))


def _relative(name: str, folder: Path) -> str:
    path = Path(name)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else name
