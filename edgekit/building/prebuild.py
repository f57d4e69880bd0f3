"""Builds the libraries that a board's backends need before the first model needs them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.backends.from_recipe import FromRecipe
from edgekit.backends.plan import chosen_backend
from edgekit.backends.registry import backend_names, load_backend
from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.wording import did_you_mean
from edgekit.cross.sources import BuiltLibrary, Recipe, build_library, built_in_recipe, recipe_names
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import Toolchain


@dataclass(frozen=True)
class PrebuiltLibrary:
    name: str
    version: str
    digest: str
    license: str | None
    """The license that its recipe names, if any."""
    size: int
    """Bytes of all files that are linked or copied to the board."""
    seconds: float
    from_cache: bool
    needs: tuple[str, ...]
    """Shared libraries that the board must have itself."""
    folder: str


@dataclass(frozen=True)
class Prebuilt:
    board: str
    toolchain: str
    libraries: tuple[PrebuiltLibrary, ...]


def libraries_for(board: Board) -> tuple[Recipe, ...]:
    """Return the recipes of the libraries that the board allows, in its order."""
    built_in = recipe_names()
    recipes = (_recipe(name, board) for name in board.offload.allowed if name in built_in)
    return tuple(recipe for recipe in recipes if board.cpu.arch in recipe.architectures)


def _recipe(name: str, board: Board) -> Recipe:
    """Return the recipe of a library, or of the variant that the board's profile chooses."""
    if name not in backend_names():
        return built_in_recipe(name)
    backend, _ = chosen_backend(name, board.offload.settings.options.get(name, {}))
    return backend.recipe if isinstance(backend, FromRecipe) else built_in_recipe(name)


def prebuild(
    board: Board, toolchain: Toolchain, names: Sequence[str] = (), events: Events = SILENT
) -> Prebuilt:
    """Build a board's libraries: the named ones, or all."""
    recipes = {recipe.name: recipe for recipe in libraries_for(board)}
    usable = tuple(
        name
        for name in board.offload.allowed
        if name in recipes or (name not in recipe_names() and name in backend_names())
    )
    for name in names:
        if name not in usable:
            listed = ", ".join(usable) or "none"
            raise UsageError(
                f"{board.name} has no use for a library called {name!r}",
                hint=did_you_mean(name, usable, f"what it may offload to: {listed}"),
            )
    wanted = tuple(dict.fromkeys(names)) if names else usable
    built = (_build(name, recipes.get(name), board, toolchain, events) for name in wanted)
    return Prebuilt(board.name, toolchain.name, tuple(one for one in built if one is not None))


def _build(
    name: str, recipe: Recipe | None, board: Board, toolchain: Toolchain, events: Events
) -> PrebuiltLibrary | None:
    """Build one library; None if the backend of another package needs none."""
    began = time.perf_counter()
    if recipe is not None:
        library = build_library(recipe, board, toolchain, events)
    else:
        found = load_backend(name).library(board, toolchain, events)
        if found is None:
            return None
        library = found
    return PrebuiltLibrary(
        name=library.name,
        version=library.version,
        digest=library.digest,
        license=recipe.license if recipe else None,
        size=_size(library),
        seconds=round(time.perf_counter() - began, 1),
        from_cache=library.from_cache,
        needs=library.needs,
        folder=str(library.folder),
    )


def _size(library: BuiltLibrary) -> int:
    linked = {Path(word) for word in library.link if not word.startswith("-")}
    return sum(path.stat().st_size for path in linked | set(library.run_time))
