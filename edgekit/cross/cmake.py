"""What CMake must be told to build for a board: a toolchain file, out of a toolchain profile."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base.quoting import cmake_string, one_line
from edgekit.cross.toolchain import which
from edgekit.profiles.cpu import architecture
from edgekit.profiles.toolchain import Toolchain

_NEVER_FROM_HERE = (
    "# Programs come from this machine; libraries and headers never do.\n"
    "set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)\n"
    "set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)\n"
    "set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)\n"
    "set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)\n"
)


def toolchain_file(toolchain: Toolchain, cpu_flags: Sequence[str], *, here: bool) -> str:
    """The text of a file for CMAKE_TOOLCHAIN_FILE.

    `cpu_flags` is what the board's compiler is told about its CPU. `here` names the tools by
    their paths on this machine; otherwise they are named as the profile does, for another's PATH.
    """
    tools = toolchain.tools
    flags = cmake_string(" ".join((*toolchain.compile_flags, *cpu_flags)))
    lines = [
        f"# {one_line(toolchain.title)}, for {one_line(toolchain.triple)}.",
        "set(CMAKE_SYSTEM_NAME Linux)",
        f"set(CMAKE_SYSTEM_PROCESSOR {cmake_string(architecture(toolchain.triple))})",
        f"set(CMAKE_C_COMPILER {_words(tools.cc, here)})",
        f"set(CMAKE_CXX_COMPILER {_words(tools.cxx, here)})",
        f"set(CMAKE_C_FLAGS_INIT {flags})",
        f"set(CMAKE_CXX_FLAGS_INIT {flags})",
    ]
    if toolchain.link_flags:
        link_flags = cmake_string(" ".join(toolchain.link_flags))
        lines += [f"set(CMAKE_{kind}_LINKER_FLAGS_INIT {link_flags})" for kind in ("EXE", "SHARED")]
    if tools.ar is not None:
        lines += _archiver(tools.ar, here)
    if tools.strip is not None and " " not in tools.strip:
        lines.append(f"set(CMAKE_STRIP {_words(tools.strip, here)})")
    if toolchain.sysroot is not None:
        lines.append(f"set(CMAKE_SYSROOT {cmake_string(toolchain.sysroot)})")
    return "\n".join(lines) + "\n" + _NEVER_FROM_HERE


def _archiver(ar: str, here: bool) -> list[str]:
    if " " not in ar:
        return [f"set(CMAKE_AR {_words(ar, here)})"]
    # A subcommand, such as `zig ar`: CMake knows no words after an archiver, so spell its rules.
    command = " ".join(_words(ar, here).replace('"', "").split())
    rules = (("CREATE", "qc"), ("APPEND", "q"))
    return [
        f'set(CMAKE_{language}_ARCHIVE_{rule} "{command} {letters} <TARGET> <OBJECTS>")'
        for language in ("C", "CXX")
        for rule, letters in rules
    ] + [f'set(CMAKE_{language}_ARCHIVE_FINISH "")' for language in ("C", "CXX")]


def _words(tool: str, here: bool) -> str:
    program, *arguments = tool.split()
    found = which(tool) if here else None
    return " ".join(cmake_string(word) for word in (str(found or program), *arguments))
