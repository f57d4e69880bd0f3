"""What to build, from what was asked for and what the project file says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.board import load_board
from edgekit.build import BuildRequest
from edgekit.cross.toolchain import load_toolchain
from edgekit.errors import UsageError
from edgekit.model import open_model
from edgekit.project import Project, find_project

if TYPE_CHECKING:
    import numpy as np


def make_request(
    model: Path | None,
    board: str | None,
    toolchain: str | None,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, np.ndarray],
    seed: int = 0,
) -> BuildRequest:
    """What was given goes before what edgekit.toml says.

    The project's shapes, constants and preprocessing belong to its own model; its board serves
    any model.
    """
    project = find_project(Path.cwd())
    board = board or (project.board if project else None)
    if board is None:
        raise UsageError(
            "no board was named",
            hint="add --board NAME (edgekit boards lists them), or set board in edgekit.toml",
        )
    path = model or (project.model if project else None)
    if path is None:
        raise UsageError(
            "no model was named, and no edgekit.toml here names one",
            hint="name a .onnx, .tflite or .pt2 file, or run edgekit init",
        )
    own = project if project is not None and _is_model_of(project, path) else None
    if own is not None:
        shapes = {**own.shapes, **shapes}
        constants = {**own.constants, **constants}
    profile = load_board(board)
    return BuildRequest(
        source=open_model(path, shapes, constants),
        board=profile,
        toolchain=load_toolchain(toolchain or profile.toolchain),
        preprocess=own.preprocess if own is not None else {},
        seed=seed,
    )


def _is_model_of(project: Project, path: Path) -> bool:
    return project.model is not None and project.model.resolve() == path.resolve()
