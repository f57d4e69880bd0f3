"""Makes a build request from a caller's options and the project file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.plan import OffloadPlan, plan_offload
from edgekit.backends.registry import kernel_backend_names, load_kernel_backend
from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.building.build import check_toolchain
from edgekit.building.request import BuildRequest
from edgekit.building.tuned_kernels import measured_choices
from edgekit.building.tuned_steps import measured_ways
from edgekit.compiler.schedules.choices import NO_CHOICES
from edgekit.profiles.board import Board, load_board
from edgekit.profiles.offload import AUTO
from edgekit.profiles.toolchain import load_toolchain
from edgekit.project.file import (
    Project,
    choose_board,
    choose_model,
    choose_offload,
    choose_preprocess,
    choose_store,
    find_project,
)

if TYPE_CHECKING:
    from edgekit.aot.packages.formats import CodeFormat
    from edgekit.base.arrays import Array


def make_request(
    model: Path | None,
    board_name: str | None,
    toolchain_name: str | None,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
    seed: int = 0,
    offload: tuple[str, ...] | None = None,
    one_layer_each: bool = False,
    prefix: str | None = None,
    code_format: CodeFormat | None = None,
    events: Events = SILENT,
    *,
    twin: bool = False,
    verified: bool = True,
) -> BuildRequest:
    """Make a request. Options override the project file.

    For a `twin`, measurements of twins count too.
    """
    project = find_project(Path.cwd())
    source = choose_model(project, model, shapes, constants)
    board = load_board(choose_board(project, board_name))
    if toolchain_name is not None:
        check_toolchain(board, load_toolchain(toolchain_name))
        # The agent on the board must come from the same compiler as the model.
        board = replace(board, toolchain=toolchain_name)
    wishes = choose_offload(project, source)
    plan = (
        _plan_for_c(board, offload if offload is not None else wishes.backends, project)
        if board.kind == "baremetal"
        else plan_offload(board, wishes, offload, twin=twin)
    )
    toolchain, store = load_toolchain(board.toolchain), choose_store(project)
    is_c = board.kind == "baremetal"
    return BuildRequest(
        source=source,
        board=board,
        toolchain=toolchain,
        offload=replace(plan, one_layer_each=one_layer_each),
        preprocess=choose_preprocess(project, source),
        seed=seed,
        verified=verified or is_c,  # C carries a test, which needs expected outputs
        prefix=prefix,
        code_format=code_format,
        choices=NO_CHOICES if is_c else measured_choices(board.target, store, events, twin=twin),
        ways=measured_ways(board, toolchain, store, events) if is_c else {},
    )


def _plan_for_c(
    board: Board, asked: tuple[str, ...] | None, project: Project | None
) -> OffloadPlan:
    """Plan the libraries whose kernels a model in C may use.

    Without a request, the board's default libraries are used.
    """
    paths = project.library_paths if project is not None else {}
    options = {name: {"path": str(path)} for name, path in paths.items()}
    usable = kernel_backend_names()
    if asked is None or asked == AUTO:
        names = tuple(name for name in board.offload.default if name in usable)
        return OffloadPlan(names, options)
    for name in asked:
        if name not in board.offload.allowed or name not in usable:
            known = ", ".join(n for n in board.offload.allowed if n in usable)
            raise UsageError(
                f"models in C for {board.name} can't use kernels of {name}",
                hint=f"there is {known}" if known else "leave --offload out: edgekit has its own",
            )
        load_kernel_backend(name).require(options.get(name, {}))
    return OffloadPlan(asked, options)
