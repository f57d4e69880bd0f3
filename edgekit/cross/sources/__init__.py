"""Third-party libraries for boards: pinned, fetched, built by the board's own toolchain, cached.

A recipe (libraries/*.toml) says what a library is and where it comes from; docs/libraries.md
describes every key. `build_library` gives it back built, `library_identity` says beforehand what
that will be.
"""

from edgekit.cross.sources.library import (
    BuiltLibrary,
    build_library,
    find_library,
    library_identity,
    library_version,
)
from edgekit.cross.sources.recipe import Recipe, built_in_recipe, load_recipe, recipe_names

__all__ = [
    "BuiltLibrary",
    "Recipe",
    "build_library",
    "built_in_recipe",
    "find_library",
    "library_identity",
    "library_version",
    "load_recipe",
    "recipe_names",
]
