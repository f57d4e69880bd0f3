"""edgekit toolchains: list, show, create and check compilers, and build libraries with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from edgekit.base.wording import duration, size
from edgekit.cli.build_options import toolchain_option
from edgekit.cli.console import Console
from edgekit.cli.options import BOARD, TOOLCHAIN, json_option, pass_console
from edgekit.cli.profile_commands import ProfileView, profile_group
from edgekit.profiles.toolchain import Toolchain, check_toolchain, parse_toolchain

if TYPE_CHECKING:
    from edgekit.building.prebuild import Prebuilt, PrebuiltLibrary


def _row(toolchain: Toolchain) -> Sequence[object]:
    return (toolchain.triple, toolchain.tools.cc, toolchain.minimum_version, toolchain.title)


def _fields(toolchain: Toolchain) -> Sequence[tuple[str, object]]:
    tools = toolchain.tools
    named = (
        ("C compiler", tools.cc),
        ("C++ compiler", tools.cxx),
        ("ar", tools.ar),
        ("strip", tools.strip),
        ("objcopy", tools.objcopy),
        ("gdb", tools.gdb),
    )
    return [
        ("name", toolchain.name),
        ("title", toolchain.title),
        ("triple", toolchain.triple),
        *named,
        ("minimum version", toolchain.minimum_version),
        ("compile flags", " ".join(toolchain.compile_flags) or None),
        ("link flags", " ".join(toolchain.link_flags) or None),
        ("CPUs by other names", len(toolchain.cpu_flags) or None),
        ("OpenMP", toolchain.openmp),
        ("sysroot", toolchain.sysroot),
        ("install", toolchain.install.command()),
        ("notes", toolchain.install.notes),
    ]


command = profile_group(
    ProfileView(
        kind="toolchains",
        noun="toolchain",
        type=TOOLCHAIN,
        parse=lambda folder: parse_toolchain,
        check=lambda path, folder: check_toolchain(path),
        columns=("triple", "compiler", "from version", "toolchain"),
        spare=("triple",),
        row=_row,
        fields=_fields,
    )
)


@command.command("build", short_help="Build the libraries that a board offloads to.")
@click.argument("board_name", metavar="BOARD", type=BOARD)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="NAME",
    help="Build only this library. May be repeated.",
)
@toolchain_option
@json_option
@pass_console
def build_command(
    console: Console, board_name: str, libraries: tuple[str, ...], toolchain_name: str | None
) -> None:
    """Build the third-party libraries that a board offloads to, with the board's toolchain.

    A model's build does this when needed; this command does it beforehand. Libraries are cached and
    not built again.
    """
    from edgekit.building.prebuild import prebuild

    board = console.workspace.data.board(board_name)
    toolchain = console.workspace.data.toolchain(toolchain_name or board.toolchain)
    done = prebuild(board, toolchain, libraries, console.events)
    console.report(done, lambda: _render_prebuilt(console, done))


def _render_prebuilt(console: Console, done: Prebuilt) -> None:
    if not done.libraries:
        console.print(f"{done.board} offloads to no library that is built beforehand")
        return
    console.table(
        ("library", "version", "size", "built", "the board must have"),
        [
            (library.name, library.version, size(library.size), _how(library), _needs(library))
            for library in done.libraries
        ],
        right=("size",),
    )


def _how(library: PrebuiltLibrary) -> str:
    return "already built" if library.from_cache else f"in {duration(library.seconds)}"


def _needs(library: PrebuiltLibrary) -> str:
    return ", ".join(library.needs) or "nothing"
