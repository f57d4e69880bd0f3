"""Public functions that work in the current folder, as `edgekit.Workspace()` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from edgekit.aot.packages.formats import CodeFormat
from edgekit.api.keywords import Unpack
from edgekit.base.arrays import Array
from edgekit.base.events import SILENT, Events
from edgekit.base.shapes import Shape
from edgekit.building.choose import BuildOptions
from edgekit.building.choose import make_request as request_for
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import Bundle
from edgekit.profiles import board as boards
from edgekit.profiles import toolchain as toolchains
from edgekit.project.workspace import open_workspace
from edgekit.verbs.export import application


class RequestKeywords(TypedDict, total=False):
    """What decides a build, as in BuildOptions."""

    seed: int
    offload: tuple[str, ...] | None
    one_layer_each: bool
    prefix: str | None
    code_format: CodeFormat | None
    verified: bool


def make_request(
    model: Path | None,
    board_name: str | None,
    toolchain_name: str | None,
    shapes: Mapping[str, Shape],
    constants: Mapping[str, Array],
    *,
    twin: bool = False,
    **options: Unpack[RequestKeywords],
) -> BuildRequest:
    """Make a build request. `Workspace.request` does the same with fewer arguments."""
    chosen = BuildOptions(
        model, board_name, toolchain_name, shapes=shapes, constants=constants, **options
    )
    return request_for(open_workspace(), chosen, twin=twin)


def board_names() -> tuple[str, ...]:
    """List the names of all boards without opening a file."""
    return boards.board_names(open_workspace().folder)


def load_board(name: str) -> boards.Board:
    """Read the board of that name to use it. "local" gets the CPU of this host."""
    return open_workspace().board(name)


def toolchain_names() -> tuple[str, ...]:
    """List the names of all toolchains without opening a file."""
    return toolchains.toolchain_names(open_workspace().folder)


def load_toolchain(name: str) -> toolchains.Toolchain:
    """Read the toolchain of that name to use it."""
    return open_workspace().toolchain(name)


def export_bundle(
    bundle: Bundle, out: Path, *, archive: bool = False, events: Events = SILENT
) -> application.ExportResult:
    """Write an application for a bundle into the folder `out`, and with `archive` as `out`.zip."""
    folder = open_workspace().folder
    return application.export(bundle, out, archive=archive, folder=folder, events=events)
