"""CMSIS-NN: finding its sources, and the files that a set of functions needs.

The user names a folder (a git checkout, an unpacked CMSIS-Pack) or a .pack file; by default the
Python package bakenn provides it. Nothing is unpacked: files are read by name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from edgekit.base.errors import MissingToolError, ProjectError
from edgekit.base.paths import named_path
from edgekit.base.wording import counted
from edgekit.base.zip_reader import ZipError, ZipMember, read_zip

VARIABLE = "EDGEKIT_CMSIS_NN"
_FUNCTIONS = "Include/arm_nnfunctions.h"
_CORE = "cmsis_compiler.h"
_LARGEST_FILE = 2 << 20
_MOST_FILES = 4000
_DEFINITION = re.compile(r"^[A-Za-z_][\w \t*]*?\b(arm_\w+)\s*\([^;{}]*\)\s*\{", re.MULTILINE)
_NAME = re.compile(r"\barm_\w+")
_QUOTED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True)
class CmsisNn:
    """The library's sources and headers, and the headers of CMSIS-Core that they include."""

    origin: str
    """The place where it was found, for reports."""
    version: str
    files: Mapping[str, str]
    """The text of each file by its path: Include/…, Source/…, Core/…"""
    license_text: str

    @property
    def major(self) -> int:
        """Return the major version; 0 if it is unknown."""
        found = re.match(r"\d+", self.version)
        return int(found[0]) if found else 0

    @cached_property
    def identity(self) -> str:
        """Hash everything that a build may use."""
        digest = hashlib.sha256(self.version.encode())
        for path, text in sorted(self.files.items()):
            digest.update(f"{path}\0{text}\0".encode())
        return digest.hexdigest()

    @cached_property
    def definitions(self) -> Mapping[str, str]:
        """Map each function to the source file that defines it."""
        return {
            function: path
            for path, text in self.files.items()
            if path.endswith(".c")
            for function in _DEFINITION.findall(_COMMENT.sub("", text))
        }

    def sources_of(self, functions: Iterable[str]) -> tuple[str, ...]:
        """List the source files of functions and of everything they call."""
        needed: set[str] = set()
        waiting = list(functions)
        while waiting:
            path = self.definitions.get(waiting.pop())
            if path is not None and path not in needed:
                needed.add(path)
                waiting += _NAME.findall(_COMMENT.sub("", self.files[path]))
        return tuple(sorted(needed))

    def with_headers(self, sources: Iterable[str]) -> dict[str, str]:
        """Return sources with every header that they include, by path."""
        headers = {path.rpartition("/")[2]: path for path in self.files if path.endswith(".h")}
        taken: dict[str, str] = {}
        waiting = [*sources, _FUNCTIONS]
        while waiting:
            path = waiting.pop()
            if path in taken:
                continue
            taken[path] = self.files[path]
            for name in _QUOTED.findall(self.files[path]):
                found = headers.get(name.rpartition("/")[2])
                if found is not None:
                    waiting.append(found)
        return taken


def find_cmsis_nn(configured: Path | None = None) -> CmsisNn:
    """Find CMSIS-NN: by the project's setting, the environment, or a Python package."""
    if configured is not None:
        return read_cmsis_nn(configured, str(configured))
    named = named_path(VARIABLE)
    if named is not None:
        return read_cmsis_nn(named, f"{VARIABLE}={named}")
    spec = find_spec("bakenn")
    if spec is None or not spec.submodule_search_locations:
        raise MissingToolError(
            "CMSIS-NN is not installed",
            hint=f"pip install 'edgekit[cmsis-nn]', or set {VARIABLE} to a checkout or a .pack",
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "backend/cmsis_nn/vendor"
    return read_cmsis_nn(folder, "the Python package bakenn")


def read_cmsis_nn(path: Path, origin: str) -> CmsisNn:
    """Read CMSIS-NN from a folder or a .pack file."""
    if path.is_dir():
        return _assembled(*_folder(path), origin)
    if path.is_file():
        try:
            with path.open("rb") as pack:
                return _assembled(*_pack(read_zip(pack, most_expansion=None)), origin)
        except (ZipError, OSError) as error:
            raise ProjectError(
                f"{origin} is no CMSIS-Pack: {error}", hint="a .pack file is a zip archive"
            ) from error
    raise ProjectError(
        f"{origin} does not exist", hint="name a folder with CMSIS-NN, or a .pack file"
    )


Read = Callable[[str], str]


def _folder(folder: Path) -> tuple[list[str], Read]:
    root = folder.resolve()
    names = [
        path.relative_to(folder).as_posix()
        for pattern in ("*.h", "*.c", "*.pdsc", "LICENSE*", "*PROVENANCE.md")
        for path in folder.rglob(pattern)
        if path.is_file() and path.resolve().is_relative_to(root)
    ]

    def read(name: str) -> str:
        file = folder / name
        _check_size(name, file.stat().st_size)
        return file.read_text(encoding="utf-8", errors="replace")

    return names, read


def _pack(members: Mapping[str, ZipMember]) -> tuple[list[str], Read]:
    def read(name: str) -> str:
        _check_size(name, members[name].size)
        return members[name].read().decode("utf-8", errors="replace")

    return list(members), read


def _check_size(name: str, size: int) -> None:
    if size > _LARGEST_FILE:
        raise ProjectError(
            f"{name} has {counted(size, 'byte')}, too many for a source of CMSIS-NN",
            hint="name the folder of CMSIS-NN itself",
        )


def _assembled(names: list[str], read: Read, origin: str) -> CmsisNn:
    found = sorted((name for name in names if f"/{name}".endswith(f"/{_FUNCTIONS}")), key=len)
    if not found:
        raise ProjectError(
            f"{origin} has no {_FUNCTIONS}",
            hint="name the folder of CMSIS-NN that holds Include and Source",
        )
    root = found[0][: -len(_FUNCTIONS)]
    files = {
        name[len(root) :]: read(name)
        for name in names[:_MOST_FILES]
        if name.startswith((f"{root}Include/", f"{root}Source/")) and name.endswith((".h", ".c"))
    }
    core = sorted((name for name in names if f"/{name}".endswith(f"/{_CORE}")), key=len)
    if core:
        folder = core[0][: -len(_CORE)]
        files |= {
            f"Core/{PurePosixPath(name).name}": read(name)
            for name in names
            if name.startswith(folder) and "/" not in name[len(folder) :] and name.endswith(".h")
        }
    elif any(_CORE in _QUOTED.findall(text) for text in files.values()):
        raise ProjectError(
            f"{origin} has no {_CORE}, which this CMSIS-NN includes",
            hint="name a folder that holds CMSIS-Core and CMSIS-NN, or a newer CMSIS-NN",
        )
    licenses = sorted((name for name in names if "LICENSE" in name.upper()), key=_nearness(root))
    text = read(licenses[0]) if licenses else "Apache-2.0, as its files say.\n"
    return CmsisNn(origin, _version(names, root, read, files), files, text)


def _nearness(root: str) -> Callable[[str], tuple[bool, int]]:
    return lambda name: (not name.startswith(root), len(name))


def _version(names: list[str], root: str, read: Read, files: Mapping[str, str]) -> str:
    for name in names:
        if name.endswith(".pdsc") and "CMSIS-NN" in name.upper():
            release = re.search(r'<release\s+version="([^"]{1,40})"', read(name))
            if release:
                return release[1]
        if name.startswith(root) and name.endswith("PROVENANCE.md"):
            release = re.search(r"Release version: ([0-9][0-9.]*)", read(name))
            if release:
                return release[1]
    revision = re.search(r"\$Revision:\s*V\.?([0-9.]+)", files[_FUNCTIONS])
    return f"of unknown release (headers {revision[1]})" if revision else "of unknown release"
