"""A library's recipe as data: its origin, its build, and the files that models use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from edgekit.base.errors import ProfileError
from edgekit.base.paths import built_in_data
from edgekit.base.toml_source import TomlError, read_toml
from edgekit.base.wording import nearest
from edgekit.profiles.instruction_sets import CPU_FLAGS
from edgekit.profiles.reader import (
    NAME_EXPECTED,
    NAME_PATTERN,
    SCHEMA_VERSION,
    Problem,
    TableReader,
    show,
)

Origin = Literal["pypi", "debian"]

_ARCHITECTURES = ("aarch64", "x86_64")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~-]{0,40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}")
_RELEASE = re.compile(r"[a-z]{1,20}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,120}")
# No part may begin with a dot, so none leads out of its folder.
_INSIDE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*")
_LINK = re.compile(rf"-l[A-Za-z0-9_]+|-pthread|-Wl(,-[A-Za-z-]+(,ALL)?)+|{_INSIDE.pattern}")
_SONAME = re.compile(r"lib[A-Za-z0-9_+-]+\.so\.[0-9.]+")
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
_VALUE = re.compile(r"[A-Za-z0-9._+-]{1,60}")
_SWITCH = re.compile(r"[a-z0-9_]{1,40}")
_INSIDE_EXPECTED = "a path inside the folder, such as lib/libname.a"


@dataclass(frozen=True)
class Archive:
    """A published file, identified by its hash; the other fields locate it."""

    origin: Origin
    project: str
    """The project on the package index, or the Debian package."""
    file: str
    sha256: str
    release: str | None
    """The Debian release of a Debian package."""
    take: Mapping[str, str]
    """The library's path of each path in the archive that belongs to it."""


@dataclass(frozen=True)
class Switches:
    """Options that are on or off, named by a prefix and each name."""

    prefix: str
    on: tuple[str, ...]
    off: tuple[str, ...]


@dataclass(frozen=True)
class CMakeBuild:
    """A build with CMake."""

    source: str
    """The folder of CMakeLists.txt in the archive."""
    options: Mapping[str, str]
    switches: tuple[Switches, ...]
    take: Mapping[str, str]
    """The library's path of each installed path that belongs to it."""


@dataclass(frozen=True)
class Products:
    """The parts of a library that a model's build uses; paths are relative to the library."""

    include: tuple[str, ...]
    link: tuple[str, ...]
    """Archives, shared libraries and -l for system libraries, in the linker's order."""
    run_time: tuple[str, ...]
    """Shared files for the model's folder on the board."""


@dataclass(frozen=True)
class When:
    """Additions for boards that match all conditions."""

    arch: str | None
    features: tuple[str, ...]
    """CPU features in the kernel's names, as in a board's profile."""
    openmp: str | None
    """The toolchain's OpenMP runtime."""
    options: Mapping[str, str] = field(default_factory=dict)
    link: tuple[str, ...] = ()
    from_compiler: tuple[str, ...] = ()
    """Run-time libraries of the compiler that go to the board too."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a library."""

    name: str
    title: str
    version: str
    license: str
    architectures: tuple[str, ...]
    archives: tuple[Archive, ...]
    cmake: CMakeBuild | None
    """The build; None if the archives hold the finished library."""
    products: Products
    whens: tuple[When, ...]


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
    try:
        source = read_toml(path)
    except OSError as error:
        raise ProfileError(
            f"{path} cannot be read: {error.strerror}", hint="check the path and its permissions"
        ) from error
    except TomlError as error:
        raise ProfileError(f"{path}: {error}", hint="a recipe is a TOML file") from error
    problems: list[Problem] = []
    reader = TableReader(source, source.table, (), problems)
    recipe = _parse(reader, path)
    reader.finish()
    if problems:
        raise ProfileError(
            str(problems[0]) if len(problems) == 1 else f"{path} has {len(problems)} problems",
            hint="docs/libraries.md describes every key of a recipe",
            details=() if len(problems) == 1 else tuple(str(problem) for problem in problems),
        )
    return recipe


def _parse(reader: TableReader, path: Path) -> Recipe:
    reader.integer("schema", SCHEMA_VERSION, SCHEMA_VERSION)
    name = reader.matching("name", NAME_PATTERN, NAME_EXPECTED)
    if name and name != path.stem:
        reader.complain("name", show(name), f'"{path.stem}", as the file is called')
    return Recipe(
        name=name,
        title=reader.text("title", limit=80),
        version=reader.matching("version", _VERSION, "a version such as 1.0"),
        license=reader.text("license", limit=60),
        architectures=reader.choices("architectures", _ARCHITECTURES),
        archives=tuple(_parse_archive(table) for table in reader.tables("archive")),
        cmake=_parse_cmake(reader.table("cmake")) if reader.has("cmake") else None,
        products=_parse_products(reader.table("products")),
        whens=(
            tuple(_parse_when(table) for table in reader.tables("when"))
            if reader.has("when")
            else ()
        ),
    )


def _parse_archive(reader: TableReader) -> Archive:
    origin = cast(Origin, reader.choice("from", ("pypi", "debian")))
    release = None
    if origin == "debian":
        release = reader.matching("release", _RELEASE, "a Debian release such as bookworm")
    archive = Archive(
        origin=origin,
        project=reader.matching("project", _PROJECT, "a project's name in lower case"),
        file=reader.matching("file", _FILE, "a file's name"),
        sha256=reader.matching("sha256", _SHA256, "64 digits of 0-9 and a-f"),
        release=release,
        take=_parse_take(reader),
    )
    reader.finish()
    return archive


def _parse_cmake(reader: TableReader) -> CMakeBuild:
    switches = reader.tables("switches") if reader.has("switches") else ()
    build = CMakeBuild(
        source=reader.matching("source", _INSIDE, "a folder of the archive"),
        options=_parse_options(reader),
        switches=tuple(_parse_switches(table) for table in switches),
        take=_parse_take(reader),
    )
    reader.finish()
    return build


def _parse_switches(reader: TableReader) -> Switches:
    expected = "a name in lower case"
    switches = Switches(
        prefix=reader.matching("prefix", _OPTION, "how the options begin"),
        on=reader.texts("on", _SWITCH, expected) if reader.has("on") else (),
        off=reader.texts("off", _SWITCH, expected) if reader.has("off") else (),
    )
    reader.finish()
    return switches


def _parse_products(reader: TableReader) -> Products:
    def listed(key: str, pattern: re.Pattern[str], expected: str) -> tuple[str, ...]:
        return reader.texts(key, pattern, expected) if reader.has(key) else ()

    products = Products(
        include=listed("include", _INSIDE, _INSIDE_EXPECTED),
        link=reader.texts("link", _LINK, f"{_INSIDE_EXPECTED}, or -l and a name"),
        run_time=listed("run_time", _INSIDE, _INSIDE_EXPECTED),
    )
    reader.finish()
    return products


def _parse_when(reader: TableReader) -> When:
    arch = reader.choice("arch", _ARCHITECTURES) if reader.has("arch") else None
    cpu_flags = CPU_FLAGS[arch] if arch else ()
    features = (
        reader.choices("features", cpu_flags, "a CPU feature of that arch")
        if reader.has("features")
        else ()
    )
    when = When(
        arch=arch,
        features=features,
        openmp=(reader.choice("openmp", ("libgomp", "none")) if reader.has("openmp") else None),
        options=_parse_options(reader),
        link=(
            reader.texts("link", _LINK, f"{_INSIDE_EXPECTED}, or -l and a name")
            if reader.has("link")
            else ()
        ),
        from_compiler=(
            reader.texts("from_compiler", _SONAME, "a library's name such as libgomp.so.1")
            if reader.has("from_compiler")
            else ()
        ),
    )
    reader.finish()
    return when


def _parse_take(reader: TableReader) -> Mapping[str, str]:
    if not reader.has("take"):
        return {}
    table = reader.table("take")
    for key in table.names():
        if not _INSIDE.fullmatch(key):
            table.complain(key[:80], show(key), _INSIDE_EXPECTED)
    return {key: table.matching(key, _INSIDE, _INSIDE_EXPECTED) for key in table.names()}


def _parse_options(reader: TableReader) -> Mapping[str, str]:
    if not reader.has("options"):
        return {}
    table = reader.table("options")
    for key in table.names():
        if not _OPTION.fullmatch(key):
            table.complain(key[:80], show(key), "a CMake option's name")
    return {
        key: table.matching(key, _VALUE, "a value in quotes without spaces")
        for key in table.names()
    }
