"""A library's recipe as data: its origin, its build, and the files that models use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from edgekit.base.decode import Check, Sha256
from edgekit.base.errors import ProfileError
from edgekit.base.paths import built_in_data
from edgekit.base.wording import nearest
from edgekit.profiles.architecture import architectures
from edgekit.profiles.reader import (
    NAME_EXPECTED,
    NAME_PATTERN,
    SCHEMA_VERSION,
    TableReader,
    matching,
    one_line,
    read_as,
    show,
)

Architecture = Annotated[
    str, Check("an architecture such as aarch64", lambda name: name in architectures())
]

# No part may begin with a dot, so none leads out of its folder.
_INSIDE = r"[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*"
_INSIDE_EXPECTED = "a path inside the folder, such as lib/libname.a"

Name = Annotated[str, matching(NAME_PATTERN, NAME_EXPECTED)]
Title = Annotated[str, one_line(80)]
License = Annotated[str, one_line(60)]
Version = Annotated[str, matching(r"[0-9][A-Za-z0-9.+~-]{0,40}", "a version such as 1.0")]
Project = Annotated[str, matching(r"[a-z0-9][a-z0-9.+-]{0,60}", "a project's name in lower case")]
File = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,120}", "a file's name")]
Release = Annotated[str, matching(r"[a-z]{1,20}", "a Debian release such as bookworm")]
Inside = Annotated[str, matching(_INSIDE, _INSIDE_EXPECTED)]
Link = Annotated[
    str,
    matching(
        rf"-l[A-Za-z0-9_]+|-pthread|-Wl(,-[A-Za-z-]+(,ALL)?)+|{_INSIDE}",
        f"{_INSIDE_EXPECTED}, or -l and a name",
    ),
]
Option = Annotated[str, matching(r"[A-Za-z][A-Za-z0-9_]{0,60}", "a CMake option's name")]
Value = Annotated[str, matching(r"[A-Za-z0-9._+-]{1,60}", "a value in quotes without spaces")]
Switch = Annotated[str, matching(r"[a-z0-9_]{1,40}", "a name in lower case")]
Soname = Annotated[str, matching(r"lib[A-Za-z0-9_+-]+\.so\.[0-9.]+", "a name such as libgomp.so.1")]


@dataclass(frozen=True)
class Archive:
    """A published file, identified by its hash; the other fields locate it."""

    origin: Literal["pypi", "debian"] = field(metadata={"key": "from"})
    project: Project
    """The project on the package index, or the Debian package."""
    file: File
    sha256: Sha256
    release: Release | None = None
    """The Debian release of a Debian package."""
    arch: Architecture | None = None
    """The architecture of the boards that it is for; None is all of the recipe's."""
    take: Mapping[Inside, Inside] = field(default_factory=dict)
    """The library's path of each path in the archive that belongs to it."""

    def __post_init__(self) -> None:
        if (self.origin == "debian") != (self.release is not None):
            raise ValueError("a package of Debian names its release, and no other archive does")


@dataclass(frozen=True)
class Switches:
    """Options that are on or off, named by a prefix and each name."""

    prefix: Option
    on: tuple[Switch, ...] = ()
    off: tuple[Switch, ...] = ()


@dataclass(frozen=True)
class CMakeBuild:
    """A build with CMake."""

    source: Inside
    """The folder of CMakeLists.txt in the archive."""
    options: Mapping[Option, Value] = field(default_factory=dict)
    switches: tuple[Switches, ...] = ()
    take: Mapping[Inside, Inside] = field(default_factory=dict)
    """The library's path of each installed path that belongs to it."""


@dataclass(frozen=True)
class Products:
    """The parts of a library that a model's build uses; paths are relative to the library."""

    link: tuple[Link, ...]
    """Archives, shared libraries and -l for system libraries, in the linker's order."""
    include: tuple[Inside, ...] = ()
    run_time: tuple[Inside, ...] = ()
    """Shared files for the model's folder on the board."""


@dataclass(frozen=True)
class When:
    """Additions for boards that match all conditions."""

    arch: Architecture | None = None
    features: tuple[str, ...] = ()
    """CPU features in the kernel's names, as in a board's profile."""
    openmp: Literal["libgomp", "none"] | None = None
    """The toolchain's OpenMP runtime."""
    variant: Switch | None = None
    """The variant of the library, which a backend's options choose."""
    options: Mapping[Option, Value] = field(default_factory=dict)
    link: tuple[Link, ...] = ()
    from_compiler: tuple[Soname, ...] = ()
    """Run-time libraries of the compiler that go to the board too."""
    take: Mapping[Inside, Inside] = field(default_factory=dict)
    """The library's path of each further path of the build that belongs to it: below `installed`
    what CMake installs, below `source` what the archives hold."""

    def __post_init__(self) -> None:
        known = architectures()[self.arch].flags if self.arch else {}
        for feature in self.features:
            if feature not in known:
                raise ValueError(f"{show(feature)} is no CPU feature of {self.arch or 'any arch'}")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a library."""

    name: Name
    title: Title
    version: Version
    license: License
    architectures: tuple[Architecture, ...]
    archives: tuple[Archive, ...] = field(metadata={"key": "archive"})
    products: Products
    cmake: CMakeBuild | None = None
    """The build; None if the archives hold the finished library."""
    whens: tuple[When, ...] = field(default=(), metadata={"key": "when"})

    def as_variant(self, name: str) -> Recipe:
        """Return the recipe of a variant: what is added for it is added always."""
        chosen = [replace(w, variant=None) if w.variant == name else w for w in self.whens]
        return replace(self, version=f"{self.version}+{name}", whens=tuple(chosen))


def recipe_names() -> tuple[str, ...]:
    """List the libraries with a built-in recipe."""
    return tuple(sorted(file.stem for file in built_in_data("libraries").glob("*.toml")))


def built_in_recipe(name: str) -> Recipe:
    """Read a built-in recipe."""
    names = recipe_names()
    if name not in names:
        near = nearest(name[:200], names)
        raise ProfileError(
            f"edgekit has no recipe for a library called {show(name)}",
            hint=f"did you mean {near}?" if near else f"it has recipes for {', '.join(names)}",
        )
    return load_recipe(built_in_data("libraries") / f"{name}.toml")


def load_recipe(path: Path) -> Recipe:
    """Read a recipe; raise ProfileError with all its problems."""
    return read_as(path, lambda reader: _parse(reader, path), _refused)


def _parse(reader: TableReader, path: Path) -> Recipe | None:
    reader.integer("schema", SCHEMA_VERSION, SCHEMA_VERSION)
    recipe = reader.rest(Recipe)
    if recipe is not None and recipe.name != path.stem:
        reader.complain("name", show(recipe.name), f'"{path.stem}", as the file is called')
    return recipe


def _refused(message: str, details: tuple[str, ...]) -> ProfileError:
    hint = "docs/libraries.md describes every key of a recipe"
    return ProfileError(message, hint=hint, details=details)
