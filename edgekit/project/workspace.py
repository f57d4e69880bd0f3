"""What edgekit reads of a folder before it works in it: project, profiles, the store's address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import ProfileError, StorageError
from edgekit.models.model import AS_IN_THE_FILE, Adaptation, ModelSource
from edgekit.profiles.board import Board, load_board
from edgekit.profiles.toolchain import Toolchain, load_toolchain
from edgekit.project.file import (
    Project,
    check_references,
    choose_board,
    choose_model,
    choose_store,
    find_project,
)
from edgekit.project.user_devices import board_anywhere

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.shapes import Shape


@dataclass(frozen=True)
class WorkspaceData:
    """A folder and what was read from it, once each. The library takes no other folder."""

    folder: Path
    """The absolute folder."""
    start: Path = field(default_factory=Path)
    """The folder of relative paths, as its caller named it."""
    store_url: str | None = None
    """The store that a caller named; None leaves it to the environment and the project."""

    @cached_property
    def project(self) -> Project | None:
        """The nearest project file; UntrustedProjectError if its user has not agreed to it."""
        return find_project(self.folder)

    @cached_property
    def shown_project(self) -> Project | None:
        """The nearest project file, for work that runs and sends nothing of it."""
        return find_project(self.folder, only_to_show=True)

    @cached_property
    def store(self) -> str | None:
        """The URL of the store for measurements; None is the user's own."""
        return choose_store(self.project, self.store_url)

    def path(self, path: str | Path) -> Path:
        """Return a path that starts at the folder if it is relative."""
        return self.start / path

    def board(self, board: str | Board | None = None) -> Board:
        """Read a board to use it; None is the project's.

        Its profile is in this folder, the project's, the user's own, or that of a device.
        """
        if isinstance(board, Board):
            return board
        name = board if board is not None else choose_board(self.project)
        try:
            return load_board(name, self.folder)
        except ProfileError:
            if (self.folder / "boards" / f"{name}.toml").exists():
                raise
        project = self.shown_project
        try:
            return board_anywhere(name, (self.folder, project.folder if project else None))
        except ProfileError:
            if board is None and self.project is not None:
                check_references(self.project, self.folder)  # tells all its mistakes
            raise

    def toolchain(self, toolchain: str | Toolchain) -> Toolchain:
        """Read a toolchain to use it."""
        if isinstance(toolchain, Toolchain):
            return toolchain
        return load_toolchain(toolchain, self.folder)

    def model(
        self,
        model: Path | None,
        shapes: Mapping[str, Shape],
        constants: Mapping[str, Array],
        adaptation: Adaptation = AS_IN_THE_FILE,
        *,
        only_to_show: bool = False,
    ) -> ModelSource:
        """Look at a model file; None is the project's."""
        project = self.shown_project if only_to_show else self.project
        own = project.model if model is None and project is not None else None
        if project is not None and own is not None and not own.exists():
            check_references(project, self.folder)
        return choose_model(project, model, shapes, constants, adaptation)


def open_workspace(folder: str | Path = "", store: str | None = None) -> WorkspaceData:
    """Return a folder's workspace, by default the current folder's. No file is read yet."""
    start = Path(folder)
    try:
        return WorkspaceData(Path.cwd() / start, start, store)
    except FileNotFoundError as error:
        raise StorageError(
            "the folder you are in has been deleted or replaced",
            hint='go to one that exists; if it was replaced, `cd "$PWD"` does',
        ) from error
