"""A toolchain profile: the compiler for a board, and how to install it.

docs/boards.md describes the file; edgekit.cross.toolchain finds the compiler on this host.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.base.children import spoken_module
from edgekit.profiles.reader import (
    Problem,
    TableReader,
    examine_profile,
    find_profile,
    load_profile,
    profile_names,
    read_profile,
    show,
)

_TRIPLE = re.compile(r"native|[a-z0-9_]+(-[a-z0-9_.]+){1,3}")
# A bare name on PATH or an absolute path, then words that choose a subcommand. A relative path is
# refused: looking at a checkout must not run the programs in it.
_TOOL = re.compile(r"(?!.*\.\.)[A-Za-z0-9/][A-Za-z0-9._+/-]*( [a-z][a-z+-]*)*")
_RELATIVE = re.compile(r"[^/]+/.*")
_FLAG = re.compile(r"-[A-Za-z][A-Za-z0-9=+,._/-]*|[a-z0-9_]+(-[a-z0-9_.]+)+")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
_ABSOLUTE = re.compile(r"/(?!.*\.\.)[A-Za-z0-9._+/-]*")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*(==[A-Za-z0-9.]+)?")
_CPU_FLAG = re.compile(r"-m[A-Za-z0-9=+._-]+")
_OPENMP = ("libgomp", "none")
_TOOL_EXPECTED = "a program on PATH, or an absolute path"


@dataclass(frozen=True)
class Tools:
    """The programs of a toolchain: each a name on PATH or an absolute path."""

    cc: str
    cxx: str
    ar: str | None
    strip: str | None
    objcopy: str | None
    gdb: str | None


@dataclass(frozen=True)
class Install:
    """The packages that provide a toolchain."""

    debian: tuple[str, ...]
    pip: tuple[str, ...]
    notes: str

    def command(self) -> str:
        """Return the command line that installs the toolchain; the notes if no package does."""
        commands = [apt_command(self.debian)] if self.debian else []
        commands += [pip_command(*self.pip)] if self.pip else []
        return " && ".join(commands) or self.notes


@dataclass(frozen=True)
class Toolchain:
    """Compilers for one triple, and the flags of every call."""

    name: str
    title: str
    triple: str
    tools: Tools
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    sysroot: str | None
    minimum_version: str
    install: Install
    origin: Path
    """The profile's path. It differs between hosts and is no part of the toolchain's identity."""
    cpu_flags: Mapping[str, str] = field(default_factory=dict)
    """This compiler's spelling of each GCC flag that a board profile may name."""
    openmp: str = "libgomp"
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


def parse_toolchain(reader: TableReader, path: Path) -> Toolchain:
    """Parse a toolchain profile. Faults are added to the reader's problems."""
    triple = reader.matching("triple", _TRIPLE, 'a triple such as aarch64-linux-gnu, or "native"')
    sysroot = None
    if reader.has("sysroot"):
        sysroot = reader.matching("sysroot", _ABSOLUTE, "an absolute path")
    return Toolchain(
        name=path.stem,
        title=reader.text("title", limit=80),
        triple=f"{platform.machine()}-linux-gnu" if triple == "native" else triple,
        tools=_parse_tools(reader.table("tools")),
        compile_flags=reader.texts("compile_flags", _FLAG, "a compiler flag without spaces"),
        link_flags=reader.texts("link_flags", _FLAG, "a linker flag without spaces"),
        sysroot=sysroot,
        minimum_version=reader.matching("minimum_version", _VERSION, "a version such as 10.2"),
        install=_parse_install(reader.table("install")),
        origin=path,
        cpu_flags=_parse_cpu_flags(reader) if reader.has("cpu_flags") else {},
        openmp=reader.choice("openmp", _OPENMP) if reader.has("openmp") else _OPENMP[0],
    )


def _parse_cpu_flags(parent: TableReader) -> Mapping[str, str]:
    expected = "a flag such as -mcpu=cortex_a72"
    reader = parent.table("cpu_flags")
    for key in reader.names():
        if not _CPU_FLAG.fullmatch(key):
            reader.complain(key[:80], show(key), expected)
    return {key: reader.matching(key, _CPU_FLAG, expected) for key in reader.names()}


def _parse_tools(reader: TableReader) -> Tools:
    def tool(key: str) -> str:
        command = reader.matching(key, _TOOL, _TOOL_EXPECTED)
        if _RELATIVE.match(command):
            reader.complain(key, f'"{command}"', _TOOL_EXPECTED)
        return command

    def optional(key: str) -> str | None:
        return tool(key) if reader.has(key) else None

    tools = Tools(
        cc=tool("cc"),
        cxx=tool("cxx"),
        ar=optional("ar"),
        strip=optional("strip"),
        objcopy=optional("objcopy"),
        gdb=optional("gdb"),
    )
    reader.finish()
    return tools


def _parse_install(reader: TableReader) -> Install:
    install = Install(
        debian=reader.texts("debian", _PACKAGE, "the name of a Debian package"),
        pip=reader.texts("pip", _PACKAGE, "the name of a Python package"),
        notes=reader.text("notes", limit=300),
    )
    reader.finish()
    return install


def apt_command(packages: tuple[str, ...]) -> str:
    """Return the command that installs Debian packages as the current user."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y {' '.join(packages)}"


def pip_command(*packages: str) -> str:
    """Return the command that installs Python packages into edgekit's environment."""
    words = [f"'{package}'" if re.search(r"[\[<>]", package) else package for package in packages]
    return f"{spoken_module('pip')} install {' '.join(words)}"
