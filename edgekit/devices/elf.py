"""Requirements of an ELF file on its machine. The file is not trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import BundleError, EdgekitError
from edgekit.base.files import storage_errors
from edgekit.cross.blob import SECTION
from edgekit.profiles.architecture import architectures

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_WRITABLE, _ALLOCATED = 1, 2
"""Flags of a section."""
_VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9]{1,4}(?:\.[0-9]{1,4}){0,3})")


@dataclass(frozen=True)
class ElfNeeds:
    """Requirements of a program or library. `versions` holds the newest version of each family that
    its symbols need: {"GLIBC": (2, 34)}."""

    name: str
    machine: str
    """Architecture, as `uname -m` prints it."""
    bits: int
    interpreter: str | None
    libraries: tuple[str, ...]
    versions: Mapping[str, tuple[int, ...]]


def read_elf(path: Path) -> ElfNeeds:
    """Read the headers of a program or library; BundleError where it is neither."""
    with _opened(path) as elf:
        return ElfNeeds(
            name=path.name,
            machine=_machine(str(elf["e_machine"]), elf.elfclass),
            bits=elf.elfclass,
            interpreter=_interpreter(elf),
            libraries=_libraries(elf),
            versions=_versions(elf),
        )


def loaded_bytes(path: Path) -> tuple[int, int]:
    """Return the read-only bytes (code and constants) and the writable bytes of an object file."""
    read, written = 0, 0
    with _opened(path) as elf:
        for section in elf.iter_sections():
            flags = int(section["sh_flags"])
            if flags & _ALLOCATED and flags & _WRITABLE:
                written += int(section["sh_size"])
            elif flags & _ALLOCATED:
                read += int(section["sh_size"])
    return read, written


def weight_bytes(path: Path) -> int:
    """Return the bytes of weights in a library's file; BundleError if it is not a library."""
    with _opened(path) as elf:
        section = elf.get_section_by_name(SECTION)
        return 0 if section is None else int(section["sh_size"])


def weight_range(path: Path) -> tuple[int, int] | None:
    """Return where a library's weights begin and end in its file; None without any."""
    with _opened(path) as elf:
        section = elf.get_section_by_name(SECTION)
        if section is None or not section["sh_size"]:
            return None
        begin = int(section["sh_offset"])
        return begin, begin + int(section["sh_size"])


def _machine(machine: str, bits: int) -> str:
    """Return the name of the architecture, or ELF's name for an unknown one."""
    for known in architectures().values():
        if known.has_os and (known.elf, known.bits) == (machine, bits):
            return known.name
    return machine


@contextmanager
def _opened(path: Path) -> Iterator[ELFFile]:
    """Open an ELF file; BundleError if any of its headers that the block reads is damaged."""
    from elftools.elf.elffile import ELFFile

    with storage_errors("read the library", path), path.open("rb") as stream:
        try:
            yield ELFFile(stream)
        except (EdgekitError, OSError):
            raise
        except Exception as error:  # pyelftools raises undocumented exceptions on damaged data
            raise BundleError(
                f"{path.name} is not a program or library: {error or 'its headers are damaged'}",
                hint="build the bundle again",
            ) from error


def _interpreter(elf: ELFFile) -> str | None:
    for segment in elf.iter_segments("PT_INTERP"):
        return str(segment.get_interp_name())
    return None


def _libraries(elf: ELFFile) -> tuple[str, ...]:
    return tuple(
        str(tag.needed)
        for segment in elf.iter_segments("PT_DYNAMIC")
        for tag in segment.iter_tags("DT_NEEDED")
    )


def _versions(elf: ELFFile) -> dict[str, tuple[int, ...]]:
    from elftools.elf.gnuversions import GNUVerNeedSection

    newest: dict[str, tuple[int, ...]] = {}
    for section in elf.iter_sections():
        if not isinstance(section, GNUVerNeedSection):
            continue
        for _, auxiliaries in section.iter_versions():
            for auxiliary in auxiliaries:
                match = _VERSION.fullmatch(str(auxiliary.name))
                if match is not None:
                    number = tuple(int(part) for part in match[2].split("."))
                    newest[match[1]] = max(newest.get(match[1], ()), number)
    return newest
