"""The compiler of a toolchain on this host: where it is, and which version."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgekit.base.children import TimeoutExpired, folder_of_python, run
from edgekit.base.errors import MissingToolError
from edgekit.base.programs import find_program
from edgekit.profiles.toolchain import Toolchain

_ASKING_SECONDS = 30


@dataclass(frozen=True)
class Compiler:
    """An installed compiler that is new enough."""

    path: Path
    arguments: tuple[str, ...]
    """The arguments before all others: `cc` for `zig cc`."""
    version: str
    banner: str

    @property
    def command(self) -> tuple[str, ...]:
        return (str(self.path), *self.arguments)


def find_compiler(toolchain: Toolchain) -> Compiler:
    """Find the C compiler.

    Raise MissingToolError, with the command that installs it, if it is missing or too old.
    """
    return find_tool(toolchain, toolchain.tools.cc)


def find_cxx_compiler(toolchain: Toolchain) -> Compiler:
    """Find the C++ compiler, or raise like find_compiler."""
    return find_tool(toolchain, toolchain.tools.cxx)


def find_tool(toolchain: Toolchain, tool: str) -> Compiler:
    """Find a compiler of a toolchain and check its version."""
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
    """Find a tool on PATH, or in the folder of edgekit's Python if its environment is inactive."""
    return find_program(tool.split()[0], [folder_of_python()]) if tool else None


@lru_cache(maxsize=64)
def _banner(path: Path, arguments: tuple[str, ...], modified: int, size: int) -> str:
    """Return the first line of --version. A changed file is asked again."""
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
            f"{path} is installed but does not run: {trouble}",
            hint="install it again for this host's architecture",
        )
    lines = (answer.output or answer.errors).splitlines()
    return lines[0].strip() if lines else ""


def version_in(banner: str) -> str | None:
    """Find the version in the answer to `--version`, after the distribution's words in brackets."""
    plain = re.sub(r"\([^)]*\)", " ", banner)
    match = re.search(r"(?<![\w.])([0-9]{1,4}(?:\.[0-9]{1,4}){1,3})", plain)
    return match[1] if match else None


def older(version: str, minimum: str) -> bool:
    """Tell whether a version precedes another, number by number: 9.4 precedes 10."""
    return _numbers(version) < _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
