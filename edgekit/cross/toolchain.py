"""A toolchain profile: which compiler makes code for a board, and how to get it.

docs/boards.md describes the file it comes from.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from edgekit.base.children import TimeoutExpired, folder_of_python, run, spoken_module
from edgekit.base.errors import MissingToolError
from edgekit.base.programs import find_program
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
# A bare name to be found on PATH, or an absolute path; words after it choose a subcommand. No
# relative path: a checkout that is only looked at must not get its own programs run.
_TOOL = re.compile(r"(?!.*\.\.)[A-Za-z0-9/][A-Za-z0-9._+/-]*( [a-z][a-z+-]*)*")
_RELATIVE = re.compile(r"[^/]+/.*")
_FLAG = re.compile(r"-[A-Za-z][A-Za-z0-9=+,._/-]*|[a-z0-9_]+(-[a-z0-9_.]+)+")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
_ABSOLUTE = re.compile(r"/(?!.*\.\.)[A-Za-z0-9._+/-]*")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*(==[A-Za-z0-9.]+)?")
_CPU_FLAG = re.compile(r"-m[A-Za-z0-9=+._-]+")
OPENMP = ("libgomp", "none")
_TOOL_EXPECTED = "a program on PATH, or an absolute path"
_ASKING_SECONDS = 30


@dataclass(frozen=True)
class Tools:
    """The programs of a toolchain: a name on PATH or an absolute path each."""

    cc: str
    cxx: str
    ar: str | None
    strip: str | None
    objcopy: str | None
    gdb: str | None


@dataclass(frozen=True)
class Install:
    """What to install where the compiler is missing."""

    debian: tuple[str, ...]
    pip: tuple[str, ...]
    notes: str

    def command(self) -> str:
        """The command line that installs the toolchain, or in words what to do."""
        commands = [apt_command(self.debian)] if self.debian else []
        commands += [pip_command(*self.pip)] if self.pip else []
        return " && ".join(commands) or self.notes


@dataclass(frozen=True)
class Toolchain:
    """Compilers for one triple, and what they are told for every file."""

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
    """The file that says so. Differs from machine to machine: no part of its identity."""
    cpu_flags: Mapping[str, str] = field(default_factory=dict)
    """How this compiler spells what board profiles say in GCC's words."""
    openmp: str = "libgomp"
    """Whose run-time library the compiler has for OpenMP, or "none"."""

    def spelled(self, flags: Iterable[str]) -> tuple[str, ...]:
        """A board's flags in the words of this compiler."""
        return tuple(self.cpu_flags.get(flag, flag) for flag in flags)


@dataclass(frozen=True)
class Compiler:
    """A compiler that is there and new enough."""

    path: Path
    arguments: tuple[str, ...]
    """What must come before all others: `cc` for `zig cc`."""
    version: str
    banner: str

    @property
    def command(self) -> tuple[str, ...]:
        return (str(self.path), *self.arguments)


def toolchain_names() -> tuple[str, ...]:
    """Every toolchain that can be named; looks at file names only."""
    return profile_names("toolchains")


def read_toolchain(name: str) -> Toolchain:
    """Read the toolchain of that name to show it."""
    return read_profile(find_profile("toolchains", name), "toolchains", parse_toolchain)


def load_toolchain(name: str) -> Toolchain:
    """Read the toolchain of that name to use it."""
    return load_profile(find_profile("toolchains", name), "toolchains", parse_toolchain)


def check_toolchain(path: Path) -> tuple[Problem, ...]:
    """Everything wrong with a toolchain profile."""
    return examine_profile(path, "toolchains", parse_toolchain)[1]


def parse_toolchain(reader: TableReader, path: Path) -> Toolchain:
    """Take a profile apart. What is wrong ends up in the reader's problems."""
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
        openmp=reader.choice("openmp", OPENMP) if reader.has("openmp") else OPENMP[0],
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


def find_compiler(toolchain: Toolchain) -> Compiler:
    """The C compiler; MissingToolError, with the command that installs it, where it is not there
    or too old."""
    return find_tool(toolchain, toolchain.tools.cc)


def find_cxx_compiler(toolchain: Toolchain) -> Compiler:
    """The C++ compiler, on the same terms."""
    return find_tool(toolchain, toolchain.tools.cxx)


def find_tool(toolchain: Toolchain, tool: str) -> Compiler:
    """A compiler of a toolchain, asked for its version."""
    path = which(tool)
    if path is None:
        raise MissingToolError(
            f"the toolchain {toolchain.name} needs {tool}, which is not installed",
            hint=toolchain.install.command(),
        )
    stat = path.stat()
    arguments = tuple(tool.split()[1:])
    banner = _banner(path, arguments, stat.st_mtime_ns, stat.st_size)
    version = version_in(banner)
    if version is None:
        raise MissingToolError(
            f"{path} does not say its version: it said {banner[:80]!r}",
            hint=f"install it again: {toolchain.install.command()}",
        )
    if older(version, toolchain.minimum_version):
        raise MissingToolError(
            f"{tool} is version {version}, and the toolchain {toolchain.name} needs"
            f" {toolchain.minimum_version} or newer",
            hint=f"install a newer one, e.g. from a newer release: {toolchain.install.command()}",
        )
    return Compiler(path, arguments, version, banner)


def which(tool: str) -> Path | None:
    """Where a tool is: on PATH, or beside the Python that runs edgekit (a virtual environment
    that nobody activated)."""
    return find_program(tool.split()[0], [folder_of_python()]) if tool else None


@lru_cache(maxsize=64)
def _banner(path: Path, arguments: tuple[str, ...], modified: int, size: int) -> str:
    """The first line of --version; asked once for each state of the file."""
    del modified, size
    try:
        answer = run(
            [str(path), *arguments, "--version"],
            limit_s=_ASKING_SECONDS,
            environment={**os.environ, "LC_ALL": "C"},
        )
        trouble = answer.last_words if answer.status else ""
    except (OSError, TimeoutExpired) as error:
        trouble = str(error)
    if trouble:
        raise MissingToolError(
            f"{path} is there but does not run: {trouble}",
            hint="install it again for this machine's architecture",
        )
    lines = (answer.output or answer.errors).splitlines()
    return lines[0].strip() if lines else ""


def version_in(banner: str) -> str | None:
    """The version in what `--version` says: after the distribution's own words in brackets."""
    plain = re.sub(r"\([^)]*\)", " ", banner)
    match = re.search(r"(?<![\w.])([0-9]{1,4}(?:\.[0-9]{1,4}){1,3})", plain)
    return match[1] if match else None


def older(version: str, minimum: str) -> bool:
    """Whether a version comes before another, number by number: 9.4 before 10."""
    return _numbers(version) < _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def apt_command(packages: tuple[str, ...]) -> str:
    """How to install Debian packages, as the user who asks."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y {' '.join(packages)}"


def pip_command(*packages: str) -> str:
    """How to install Python packages into the environment that runs edgekit."""
    words = [f"'{package}'" if re.search(r"[\[<>]", package) else package for package in packages]
    return f"{spoken_module('pip')} install {' '.join(words)}"
