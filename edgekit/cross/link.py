"""From TVM's compiled code to a shared library, through the board's own compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.cross.tools import run_tool

if TYPE_CHECKING:
    from edgekit.cross.toolchain import Compiler, Toolchain

# The same objects give the same bytes, with nothing in them that the device does not need.
_ALWAYS = ("-shared", "-fPIC", "-Wl,--build-id=none", "-Wl,--strip-all")


def link_shared_library(
    executable: Any, toolchain: Toolchain, compiler: Compiler, out: Path, scratch: Path
) -> None:
    """Export a compiled Relax executable as `out`, linked in `scratch`.

    BuildError with the compiler's last lines where it fails.
    """
    executable.export_library(
        str(out), fcompile=_linker(toolchain, compiler, scratch), workspace_dir=str(scratch)
    )


def _linker(
    toolchain: Toolchain, compiler: Compiler, scratch: Path
) -> Callable[[str, Sequence[str]], None]:
    def link(output: str, objects: Sequence[str]) -> None:
        # Names relative to the folder it runs in: a compiler may write down what it was given.
        names = [_relative(name, scratch) for name in objects]
        command = [str(compiler.path), *_ALWAYS, *toolchain.compile_flags, "-o", output]
        run_tool(
            [*command, *names, *toolchain.link_flags],
            folder=scratch,
            doing="linking the model's library",
        )

    link.output_format = "so"  # type: ignore[attr-defined]
    link.get_target_triple = lambda: toolchain.triple  # type: ignore[attr-defined]
    return link


def _relative(name: str, folder: Path) -> str:
    path = Path(name)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else name
