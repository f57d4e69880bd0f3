"""Third-party libraries for boards: pinned, fetched, built by the board's own toolchain, cached.

A recipe (libraries/*.toml) describes a library and its origin; docs/libraries.md describes every
key. `build_library` returns it built; `library_identity` returns its digest beforehand.
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
