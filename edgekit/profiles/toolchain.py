"""A toolchain profile: the compiler for a board, and how to install it.

docs/boards.md describes the file; edgekit.cross.toolchain finds the compiler on this host.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from edgekit.base.children import spoken_module
from edgekit.profiles.reader import (
    LISTED,
    Problem,
    TableReader,
    examine_profile,
    find_profile,
    load_profile,
    matching,
    one_line,
    profile_names,
    read_profile,
)

# A bare name on PATH or an absolute path, then words that choose a subcommand. A relative path is
# refused: looking at a checkout must not run the programs in it.
_TOOL = r"(?!.*\.\.)(?![^/]+/)[A-Za-z0-9/][A-Za-z0-9._+/-]*( [a-z][a-z+-]*)*"
_FLAG = r"-[A-Za-z][A-Za-z0-9=+,._/-]*|[a-z0-9_]+(-[a-z0-9_.]+)+"
_PACKAGE = r"[A-Za-z0-9][A-Za-z0-9.+_-]*(==[A-Za-z0-9.]+)?"

Triple = Annotated[
    str,
    matching(
        r"native|[a-z0-9_]+(-[a-z0-9_.]+){1,3}", 'a triple such as aarch64-linux-gnu, or "native"'
    ),
]
Tool = Annotated[str, matching(_TOOL, "a program on PATH, or an absolute path")]
CompilerFlag = Annotated[str, matching(_FLAG, "a compiler flag without spaces")]
LinkerFlag = Annotated[str, matching(_FLAG, "a linker flag without spaces")]
CpuFlag = Annotated[str, matching(r"-m[A-Za-z0-9=+._-]+", "a flag such as -mcpu=cortex_a72")]
Absolute = Annotated[str, matching(r"/(?!.*\.\.)[A-Za-z0-9._+/-]*", "an absolute path")]
Version = Annotated[str, matching(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}", "a version such as 10.2")]
DebianPackage = Annotated[str, matching(_PACKAGE, "the name of a Debian package")]
PythonPackage = Annotated[str, matching(_PACKAGE, "the name of a Python package")]


@dataclass(frozen=True)
class Tools:
    """The programs of a toolchain: each a name on PATH or an absolute path."""

    cc: Tool
    cxx: Tool
    ar: Tool | None = None
    strip: Tool | None = None
    objcopy: Tool | None = None
    gdb: Tool | None = None


@dataclass(frozen=True)
class Install:
    """The packages that provide a toolchain."""

    debian: Annotated[tuple[DebianPackage, ...], LISTED]
    pip: Annotated[tuple[PythonPackage, ...], LISTED]
    notes: Annotated[str, one_line(300)]

    def command(self) -> str:
        """Return the command line that installs the toolchain; the notes if no package does."""
        commands = [apt_command(self.debian)] if self.debian else []
        commands += [pip_command(*self.pip)] if self.pip else []
        return " && ".join(commands) or self.notes


@dataclass(frozen=True)
class Toolchain:
    """Compilers for one triple, and the flags of every call."""

    name: str
    title: Annotated[str, one_line(80)]
    triple: Triple
    tools: Tools
    compile_flags: Annotated[tuple[CompilerFlag, ...], LISTED]
    link_flags: Annotated[tuple[LinkerFlag, ...], LISTED]
    minimum_version: Version
    install: Install
    origin: Path
    """The profile's path. It differs between hosts and is no part of the toolchain's identity."""
    sysroot: Absolute | None = None
    cpu_flags: Mapping[CpuFlag, CpuFlag] = field(default_factory=dict)
    """This compiler's spelling of each GCC flag that a board profile may name."""
    openmp: Literal["libgomp", "none"] = "libgomp"
    """The compiler's OpenMP runtime library, or "none"."""

    def spelled(self, flags: Iterable[str]) -> tuple[str, ...]:
        """Spell a board's flags as this compiler does."""
        return tuple(self.cpu_flags.get(flag, flag) for flag in flags)


def toolchain_names(folder: Path | None = None) -> tuple[str, ...]:
    """List the names of all toolchains without opening a file."""
    return profile_names("toolchains", folder)


def read_toolchain(name: str, folder: Path | None = None) -> Toolchain:
    """Read the toolchain of that name to show it."""
    return read_profile(find_profile("toolchains", name, folder), "toolchains", parse_toolchain)


def load_toolchain(name: str, folder: Path | None = None) -> Toolchain:
    """Read the toolchain of that name to use it. Those of a workspace's `folder` go first."""
    return load_profile(find_profile("toolchains", name, folder), "toolchains", parse_toolchain)


def check_toolchain(path: Path) -> tuple[Problem, ...]:
    """List everything wrong with a toolchain profile."""
    return examine_profile(path, "toolchains", parse_toolchain)[1]


def parse_toolchain(reader: TableReader, path: Path) -> Toolchain | None:
    """Parse a toolchain profile. Faults are added to the reader's problems."""
    toolchain = reader.rest(Toolchain, name=path.stem, origin=path)
    if toolchain is not None and toolchain.triple == "native":
        return replace(toolchain, triple=f"{platform.machine()}-linux-gnu")
    return toolchain


def apt_command(packages: tuple[str, ...]) -> str:
    """Return the command that installs Debian packages as the current user."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y {' '.join(packages)}"


def pip_command(*packages: str) -> str:
    """Return the command that installs Python packages into edgekit's environment."""
    words = [f"'{package}'" if re.search(r"[\[<>]", package) else package for package in packages]
    return f"{spoken_module('pip')} install {' '.join(words)}"
