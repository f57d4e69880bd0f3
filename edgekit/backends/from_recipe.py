"""Shared code of backends whose library edgekit builds from a recipe (libraries/NAME.toml)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.backends.base import Option

if TYPE_CHECKING:
    from edgekit.base.events import Events
    from edgekit.cross.sources import BuiltLibrary
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
    def version(self) -> str:
        from edgekit.cross.sources import built_in_recipe, library_version

        return library_version(built_in_recipe(self.name))

    def identity(self, board: Board, toolchain: Toolchain) -> str:
        from edgekit.cross.sources import built_in_recipe, library_identity

        return library_identity(built_in_recipe(self.name), board, toolchain)

    def library(self, board: Board, toolchain: Toolchain, events: Events) -> BuiltLibrary:
        from edgekit.cross.sources import build_library, built_in_recipe

        return build_library(built_in_recipe(self.name), board, toolchain, events=events)
