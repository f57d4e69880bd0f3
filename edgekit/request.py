"""What to build, from what was asked for and what the project file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.plan import plan_offload
from edgekit.board import load_board
from edgekit.build import BuildRequest, check_toolchain
from edgekit.cross.toolchain import load_toolchain
from edgekit.project import (
    choose_board,
    choose_model,
    choose_offload,
    choose_preprocess,
    find_project,
)
from edgekit.tuning.store import measured_choices

if TYPE_CHECKING:
    from edgekit.arrays import Array


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
) -> BuildRequest:
    """What was given goes before what the project file says."""
    project = find_project(Path.cwd())
    source = choose_model(project, model, shapes, constants)
    board = load_board(choose_board(project, board_name))
    if toolchain_name is not None:
        check_toolchain(board, load_toolchain(toolchain_name))
        # What runs the model over there is made by the same compiler as the model.
        board = replace(board, toolchain=toolchain_name)
    plan = plan_offload(board, choose_offload(project, source), offload)
    return BuildRequest(
        source=source,
        board=board,
        toolchain=load_toolchain(board.toolchain),
        offload=replace(plan, one_layer_each=one_layer_each),
        preprocess=choose_preprocess(project, source),
        seed=seed,
        prefix=prefix,
        choices=measured_choices(board.target),
    )
