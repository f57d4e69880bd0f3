"""What backends share whose library edgekit builds from a recipe (libraries/NAME.toml)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.board import Board
    from edgekit.cross.sources import BuiltLibrary
    from edgekit.cross.toolchain import Toolchain
    from edgekit.events import Events


@dataclass(frozen=True)
class FromRecipe:
    name: str

    @property
    def version(self) -> str:
        from edgekit.cross.sources import built_in_recipe

        return built_in_recipe(self.name).version

    def identity(self, board: Board, toolchain: Toolchain) -> str:
        from edgekit.cross.sources import built_in_recipe, library_identity

        return library_identity(built_in_recipe(self.name), board, toolchain)

    def library(self, board: Board, toolchain: Toolchain, events: Events) -> BuiltLibrary:
        from edgekit.cross.sources import build_library, built_in_recipe

        return build_library(built_in_recipe(self.name), board, toolchain, events=events)
