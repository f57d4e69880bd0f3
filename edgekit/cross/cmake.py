"""CMake toolchain files, made from toolchain profiles."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base.quoting import cmake_string, one_line
from edgekit.cross.toolchain import which
from edgekit.profiles.architecture import architecture
from edgekit.profiles.toolchain import Toolchain

_NO_HOST_LIBRARIES = (
    "# Programs come from the host; libraries and headers never do.\n"
    "set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)\n"
    "set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)\n"
    "set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)\n"
    "set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)\n"
)


def toolchain_file(toolchain: Toolchain, cpu_flags: Sequence[str], *, host_paths: bool) -> str:
    """Write a file for CMAKE_TOOLCHAIN_FILE.

    `cpu_flags` are the compiler's flags for the board's CPU. With `host_paths`, tools are named by
    their paths on this host; otherwise as in the profile, for the PATH of another host.
    """
    tools = toolchain.tools
    flags = cmake_string(" ".join((*toolchain.compile_flags, *cpu_flags)))
    lines = [
        f"# {one_line(toolchain.title)}, for {one_line(toolchain.triple)}.",
        "set(CMAKE_SYSTEM_NAME Linux)",
        f"set(CMAKE_SYSTEM_PROCESSOR {cmake_string(architecture(toolchain.triple))})",
        f"set(CMAKE_C_COMPILER {_words(tools.cc, host_paths)})",
        f"set(CMAKE_CXX_COMPILER {_words(tools.cxx, host_paths)})",
        f"set(CMAKE_C_FLAGS_INIT {flags})",
        f"set(CMAKE_CXX_FLAGS_INIT {flags})",
    ]
    if toolchain.link_flags:
        link_flags = cmake_string(" ".join(toolchain.link_flags))
        lines += [f"set(CMAKE_{kind}_LINKER_FLAGS_INIT {link_flags})" for kind in ("EXE", "SHARED")]
    if tools.ar is not None:
        lines += _archiver(tools.ar, host_paths)
    if tools.strip is not None and " " not in tools.strip:
        lines.append(f"set(CMAKE_STRIP {_words(tools.strip, host_paths)})")
    if toolchain.sysroot is not None:
        lines.append(f"set(CMAKE_SYSROOT {cmake_string(toolchain.sysroot)})")
    return "\n".join(lines) + "\n" + _NO_HOST_LIBRARIES


def _archiver(ar: str, host_paths: bool) -> list[str]:
    if " " not in ar:
        return [f"set(CMAKE_AR {_words(ar, host_paths)})"]
    # A subcommand, such as `zig ar`: CMake allows no words after an archiver, so spell its rules.
    command = " ".join(_words(ar, host_paths).replace('"', "").split())
    rules = (("CREATE", "qc"), ("APPEND", "q"))
    return [
        f'set(CMAKE_{language}_ARCHIVE_{rule} "{command} {letters} <TARGET> <OBJECTS>")'
        for language in ("C", "CXX")
        for rule, letters in rules
    ] + [f'set(CMAKE_{language}_ARCHIVE_FINISH "")' for language in ("C", "CXX")]


def _words(tool: str, host_paths: bool) -> str:
    program, *arguments = tool.split()
    found = which(tool) if host_paths else None
    return " ".join(cmake_string(word) for word in (str(found or program), *arguments))
