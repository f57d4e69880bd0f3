"""Shared code of backends whose library edgekit builds from a recipe (libraries/NAME.toml)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.backends.base import Option

if TYPE_CHECKING:
    from edgekit.base.events import Events
    from edgekit.cross.sources import BuiltLibrary, Recipe
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain


THREADS = Option(0, "threads of a region; 0 takes as many as the rest of the model")
NON_FINITE = Option("error", "NaN and infinity in a region's inputs", ("error", "pass"))
INT8 = Option(
    False, "convolutions and dense layers of quantised models too, which may come out a step away"
)
"""Options that several backends share."""


class FromRecipe:
    name: str

    @property
    def recipe(self) -> Recipe:
        from edgekit.cross.sources import built_in_recipe

        return built_in_recipe(self.name)

    @property
    def version(self) -> str:
        from edgekit.cross.sources import library_version

        return library_version(self.recipe)

    def identity(self, board: Board, toolchain: Toolchain) -> str:
        from edgekit.cross.sources import library_identity

        return library_identity(self.recipe, board, toolchain)

    def library(self, board: Board, toolchain: Toolchain, events: Events) -> BuiltLibrary:
        from edgekit.cross.sources import build_library

        return build_library(self.recipe, board, toolchain, events=events)
