"""edgekit toolchains: which compilers edgekit knows, and what their profiles say."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.cli.options import TOOLCHAIN
from edgekit.cli.profile_commands import ProfileView, profile_group
from edgekit.cross.toolchain import Toolchain, check_toolchain, parse_toolchain


def _row(toolchain: Toolchain) -> Sequence[object]:
    return (toolchain.triple, toolchain.tools.cc, toolchain.minimum_version, toolchain.title)


def _fields(toolchain: Toolchain) -> Sequence[tuple[str, object]]:
    tools = toolchain.tools
    named = (
        ("C compiler", tools.cc),
        ("C++ compiler", tools.cxx),
        ("ar", tools.ar),
        ("strip", tools.strip),
        ("objcopy", tools.objcopy),
        ("gdb", tools.gdb),
    )
    return [
        ("name", toolchain.name),
        ("title", toolchain.title),
        ("triple", toolchain.triple),
        *named,
        ("minimum version", toolchain.minimum_version),
        ("compile flags", " ".join(toolchain.compile_flags) or None),
        ("link flags", " ".join(toolchain.link_flags) or None),
        ("sysroot", toolchain.sysroot),
        ("install", toolchain.install.command()),
        ("notes", toolchain.install.notes),
    ]


command = profile_group(
    ProfileView(
        kind="toolchains",
        noun="toolchain",
        type=TOOLCHAIN,
        parse=parse_toolchain,
        check=check_toolchain,
        columns=("triple", "compiler", "from version", "toolchain"),
        row=_row,
        fields=_fields,
    )
)
