"""Third-party libraries, built for a board or taken from the cache."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import IO

from edgekit.base.cache import BuildCache
from edgekit.base.decode import decode_json
from edgekit.base.errors import BuildError, StorageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_bytes, sha256_file, storage_errors
from edgekit.base.options import option
from edgekit.base.paths import cache_dir, named_path
from edgekit.cross.cmake import toolchain_file
from edgekit.cross.sources.fetch import fetch
from edgekit.cross.sources.recipe import Archive, CMakeBuild, Products, Recipe, When
from edgekit.cross.sources.steps import Steps, jobs, require_build_tools
from edgekit.cross.sources.unpack import take, unpack
from edgekit.cross.toolchain import find_compiler, find_cxx_compiler
from edgekit.cross.tools import run_tool
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import Toolchain

_SUMS = "sums.json"
_LOGS_KEPT_SECONDS = 7 * 86400
_METHOD = 1
"""The version of the build method. A change builds all libraries again."""


@dataclass(frozen=True)
class BuiltLibrary:
    """A library for one kind of CPU, ready to compile against and link with."""

    name: str
    version: str
    digest: str
    """The hash of everything that decides it: recipe, sources, compiler, flags, options."""
    include: tuple[Path, ...]
    link: tuple[str, ...]
    """The linker's words after the objects, in order."""
    run_time: tuple[Path, ...]
    """Shared files for the model's folder on the board."""
    needs: tuple[str, ...]
    """Shared libraries that the board must have: libgomp.so.1."""
    folder: Path
    """The read-only folder of the library."""
    from_cache: bool
    own: bool = False
    """Whether the user provides it. Its version is unknown then."""


@dataclass(frozen=True)
class _Plan:
    """A recipe as it applies to a board and a toolchain."""

    recipe: Recipe
    archives: tuple[Archive, ...]
    """The archives for the board's architecture."""
    toolchain: Toolchain
    cpu_flags: tuple[str, ...]
    options: Mapping[str, str]
    link: tuple[str, ...]
    from_compiler: tuple[str, ...]
    take: Mapping[str, str]
    """Further paths of the build that belong to it, as in `When`."""
    key: str
    arch: str

    @property
    def title(self) -> str:
        return f"{self.recipe.name} {self.recipe.version} for {self.arch}"


def library_identity(recipe: Recipe, board: Board, toolchain: Toolchain) -> str:
    """Return the digest that the built library will have, without a build."""
    own = _users_own(recipe, board, toolchain)
    return own.digest if own else _plan(recipe, board, toolchain).key


def library_version(recipe: Recipe) -> str:
    """Return the recipe's version, or one made from the hash of the user's own library."""
    named = named_path(_variable(recipe.name))
    return _own_version(recipe.name, recipe.products, named) if named else recipe.version


@lru_cache(maxsize=16)
def _own_version(name: str, products: Products, folder: Path) -> str:
    """Hash a user's library once: every region needs the version, and a library is large."""
    return f"own-{_in_folder(name, products, folder).digest[:12]}"


def find_library(recipe: Recipe, board: Board, toolchain: Toolchain) -> BuiltLibrary | None:
    """Return a library if it is complete, without a build."""
    own = _users_own(recipe, board, toolchain)
    if own is not None:
        return own
    plan = _plan(recipe, board, toolchain)
    return _read(plan, libraries_cache())


def build_library(
    recipe: Recipe, board: Board, toolchain: Toolchain, events: Events = SILENT
) -> BuiltLibrary:
    """Return the library for a board, built first if the cache has no complete one."""
    own = _users_own(recipe, board, toolchain)
    if own is not None:
        return own
    plan, cache = _plan(recipe, board, toolchain), libraries_cache()
    waiting = f"waiting for another edgekit to build {plan.title}"
    with cache.locked(plan.key, partial(events.note, waiting)):
        found = _read(plan, cache)
        if found is not None:
            return found
        if recipe.cmake is not None:
            require_build_tools(f"building {recipe.name}")
        with _log(plan) as log, cache.storing(plan.key, "library", plan.title) as folder:
            _make(plan, folder, cache, log, events)
            sums = {
                path.relative_to(folder).as_posix(): sha256_file(path)
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            }
            (folder / _SUMS).write_text(json.dumps(sums), encoding="ascii")
        found = _read(plan, cache)
    if found is None:
        raise StorageError(
            f"{plan.title} was built, but the cache holds other bytes",
            hint=f"check the disk of {cache.root}",
        )
    return replace(found, from_cache=False)


def libraries_cache() -> BuildCache:
    """Return the cache of built libraries."""
    return BuildCache(cache_dir() / "libraries")


def sweep_libraries() -> None:
    """Remove leftovers of killed builds, and old logs of libraries that are gone."""
    cache = libraries_cache()
    cache.sweep()
    stored = {entry.key[:16] for entry in cache.entries()}
    old = time.time() - _LOGS_KEPT_SECONDS
    with storage_errors("tidy the libraries' logs", cache.root):
        for log in _logs().glob("*.log"):
            if log.stem.rpartition("-")[2] not in stored and log.stat().st_mtime < old:
                log.unlink()


def _plan(recipe: Recipe, board: Board, toolchain: Toolchain) -> _Plan:
    arch = board.cpu.arch
    if arch not in recipe.architectures:
        raise BuildError(
            f"{recipe.name} is for {' and '.join(recipe.architectures)}, and the board"
            f" {board.name} is {arch}",
            hint=f"leave {recipe.name} out of {option('offload')}",
        )
    whens = [when for when in recipe.whens if _applies(when, board, toolchain)]
    options: dict[str, str] = {}
    if recipe.cmake is not None:
        options.update(recipe.cmake.options)
        for group in recipe.cmake.switches:
            options.update({f"{group.prefix}{name}": "ON" for name in group.on})
            options.update({f"{group.prefix}{name}": "OFF" for name in group.off})
    taken: dict[str, str] = {}
    for when in whens:
        options.update(when.options)
        taken.update(when.take)
    flags = toolchain.spelled(board.cpu.compile_flags)
    link = (*recipe.products.link, *(word for when in whens for word in when.link))
    extra = tuple(name for when in whens for name in when.from_compiler)
    compilers = [find_compiler(toolchain).banner, find_cxx_compiler(toolchain).banner]
    archives = tuple(archive for archive in recipe.archives if archive.arch in (None, arch))
    ingredients = [
        _METHOD, recipe.name, recipe.version, [_identity(archive) for archive in archives],
        asdict(recipe.cmake) if recipe.cmake else None, asdict(recipe.products), options,
        link, extra, arch, flags, compilers, toolchain.triple, toolchain.compile_flags,
        toolchain.link_flags, toolchain.sysroot,
    ]  # fmt: skip
    if taken:
        ingredients.append(taken)
    key = sha256_bytes(json.dumps(ingredients, sort_keys=True).encode())
    return _Plan(recipe, archives, toolchain, flags, options, link, extra, taken, key, arch)


def _identity(archive: Archive) -> dict[str, object]:
    """Return what a library takes of an archive. Its architecture is an ingredient of its own."""
    return {name: value for name, value in asdict(archive).items() if name != "arch"}


def _applies(when: When, board: Board, toolchain: Toolchain) -> bool:
    return (
        when.variant is None
        and when.arch in (None, board.cpu.arch)
        and when.openmp in (None, toolchain.openmp)
        and set(when.features) <= set(board.cpu.features)
    )


def _make(plan: _Plan, folder: Path, cache: BuildCache, log: IO[bytes], events: Events) -> None:
    recipe = plan.recipe
    with cache.scratch() as work:
        tree = work / "source"
        tree.mkdir()
        for archive in plan.archives:
            file = fetch(archive, cache, log, events)
            with storage_errors("unpack the source", work):
                if file.suffix == ".deb":
                    command = ("dpkg-deb", "-x", str(file), str(tree))
                    Steps(work, log).run(command, doing=f"unpack {file.name}")
                else:
                    unpack(file, tree)
                take(tree, archive.take, folder, file.name)
        if recipe.cmake is not None:
            _compile(plan, recipe.cmake, work, log, events)
            take(work / "installed", recipe.cmake.take, folder, f"what {recipe.name} installs")
            take(work, plan.take, folder, f"the build of {recipe.name}")
        _take_from_compiler(plan, folder)


def _compile(plan: _Plan, build: CMakeBuild, work: Path, log: IO[bytes], events: Events) -> None:
    """Compile with paths in `work` mapped away, so that the same source gives the same bytes."""
    name = plan.recipe.name
    steps = Steps(work, log)
    flags = (*plan.cpu_flags, "-w", f"-ffile-prefix-map={work}=.")
    text = toolchain_file(plan.toolchain, flags, host_paths=True)
    (work / "toolchain.cmake").write_text(text, encoding="utf-8")
    with events.stage(f"configure {name} for {plan.arch}"):
        steps.run(
            (
                *("cmake", "-G", "Ninja", "-S", f"source/{build.source}", "-B", "build"),
                f"-DCMAKE_TOOLCHAIN_FILE={work / 'toolchain.cmake'}",
                f"-DCMAKE_INSTALL_PREFIX={work / 'installed'}",
                *("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_LIBDIR=lib"),
                "-DCMAKE_POSITION_INDEPENDENT_CODE=ON",
                *(f"-D{option}={value}" for option, value in sorted(plan.options.items())),
            ),
            doing=f"configure {name}",
        )
    total = _count_steps(steps, log)
    done = 0
    with events.stage(f"compile {name} for {plan.arch}", total) as stage:

        def progress(number: int, of: int) -> None:
            nonlocal done
            stage.advance(max(0, number - done))
            done = max(done, number)

        command = ("ninja", "-C", "build", f"-j{jobs()}")
        steps.run(command, doing=f"compile {name}", on_progress=progress)
    steps.run(("cmake", "--install", "build"), doing=f"install {name}")


def _count_steps(steps: Steps, log: IO[bytes]) -> int | None:
    totals: list[int] = []
    steps.run(
        ("ninja", "-C", "build", "-n"),
        doing="count the build's steps",
        on_progress=lambda _, total: totals.append(total),
    )
    return totals[-1] if totals else None


def _take_from_compiler(plan: _Plan, folder: Path) -> None:
    for name in plan.from_compiler:
        found = _of_compiler(plan.toolchain, name)
        if found is not None:
            (folder / "lib").mkdir(exist_ok=True)
            shutil.copyfile(found, folder / "lib" / name)


def _of_compiler(toolchain: Toolchain, name: str) -> Path | None:
    """Find a run-time library of the compiler, which repeats the name if it has none."""
    command = (*find_cxx_compiler(toolchain).command, *toolchain.compile_flags)
    folder = cache_dir()
    with storage_errors("find a library of the compiler", folder):
        folder.mkdir(parents=True, exist_ok=True)
    answer = run_tool((*command, f"-print-file-name={name}"), folder=folder, doing=f"find {name}")
    path = Path(answer.strip())
    return path if path.is_absolute() and path.is_file() else None


def _read(plan: _Plan, cache: BuildCache) -> BuiltLibrary | None:
    """Return the cached library if no file has changed."""
    folder = cache.find(plan.key)
    if folder is None:
        return None
    try:
        sums = decode_json(dict[str, str], (folder / _SUMS).read_bytes())
        if not all(sha256_file(folder / name) == digest for name, digest in sums.items()):
            return None
    except (OSError, ValueError):
        return None
    products = plan.recipe.products
    shipped = [f"lib/{name}" for name in plan.from_compiler if f"lib/{name}" in sums]
    return BuiltLibrary(
        name=plan.recipe.name,
        version=plan.recipe.version,
        digest=plan.key,
        include=tuple(folder / name for name in products.include),
        link=tuple(str(folder / word) if word in sums else word for word in plan.link),
        run_time=tuple(folder / name for name in (*products.run_time, *shipped)),
        needs=tuple(name for name in plan.from_compiler if f"lib/{name}" not in sums),
        folder=folder,
        from_cache=True,
    )


def _users_own(recipe: Recipe, board: Board, toolchain: Toolchain) -> BuiltLibrary | None:
    """Return the library in the folder that the user names, as in EDGEKIT_LIBRARY_ACL=/opt/acl.

    The compiler's run-time libraries are added as for a built one.
    """
    named = named_path(_variable(recipe.name))
    if named is None:
        return None
    library = _in_folder(recipe.name, recipe.products, named)
    whens = [when for when in recipe.whens if _applies(when, board, toolchain)]
    shared = {name: _of_compiler(toolchain, name) for when in whens for name in when.from_compiler}
    return replace(
        library,
        link=(*library.link, *(_linked(named, word) for when in whens for word in when.link)),
        run_time=(*library.run_time, *(path for path in shared.values() if path is not None)),
        needs=tuple(name for name, path in shared.items() if path is None),
    )


def _in_folder(name: str, products: Products, folder: Path) -> BuiltLibrary:
    files = [folder / word for word in products.link if not word.startswith("-")]
    present = [file for file in files if file.is_file()]
    if not present or not all((folder / part).is_dir() for part in products.include):
        wanted = ", ".join((*products.include, *(str(f.relative_to(folder)) for f in files)))
        raise BuildError(
            f"{_variable(name)} names {folder}, which is no {name}",
            hint=f"the folder must hold {wanted}; one of several archives is enough",
        )
    run_time = tuple(folder / file for file in products.run_time if (folder / file).is_file())
    headers = [path for part in products.include for path in sorted((folder / part).rglob("*.h*"))]
    with storage_errors("read the library", folder):
        digest = sha256_bytes(
            "\n".join(
                f"{path.relative_to(folder)} {sha256_file(path)}"
                for path in (*present, *run_time, *headers)
                if path.is_file()
            ).encode()
        )
    return BuiltLibrary(
        name=name,
        version=f"of {folder}",
        digest=digest,
        include=tuple(folder / part for part in products.include),
        link=tuple(
            _linked(folder, word)
            for word in products.link
            if word.startswith("-") or folder / word in present
        ),
        run_time=run_time,
        needs=(),
        folder=folder,
        from_cache=True,
        own=True,
    )


def _linked(folder: Path, word: str) -> str:
    return word if word.startswith("-") else str(folder / word)


def _variable(name: str) -> str:
    return "EDGEKIT_LIBRARY_" + name.upper().replace("-", "_")


@contextmanager
def _log(plan: _Plan) -> Iterator[IO[bytes]]:
    path = _logs() / f"{plan.recipe.name}-{plan.key[:16]}.log"
    with storage_errors("write the log", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("w+b")
    with stream:
        yield stream


def _logs() -> Path:
    return libraries_cache().root / "logs"
