"""Read a microcontroller's firmware file: its segments and the functions at its addresses. The file
is not trusted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import BundleError, EdgekitError
from edgekit.base.files import storage_errors
from edgekit.profiles.architecture import architectures

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_MACHINES = {known.elf for known in architectures().values() if not known.has_os}
_ALLOCATED = 2
_MOST_BYTES = 256 << 20
_BUILD_ID_BYTES = 20


@dataclass(frozen=True)
class Segment:
    """Bytes that are written to one place."""

    address: int
    file_size: int


@dataclass(frozen=True)
class Function:
    name: str
    start: int
    size: int


@dataclass(frozen=True)
class FirmwareFile:
    path: Path
    build_id: str
    """The linker's hash of its output, in hexadecimal."""
    segments: tuple[Segment, ...]
    ram: int
    """Bytes of RAM that the running firmware takes."""
    functions: tuple[Function, ...]
    """Functions, ordered by address."""
    machine: str = "EM_ARM"
    """The name of the ELF machine."""

    @cached_property
    def _starts(self) -> list[int]:
        return [function.start for function in self.functions]

    def function_at(self, address: int) -> Function | None:
        index = bisect_right(self._starts, address & ~1) - 1
        if index < 0:
            return None
        function = self.functions[index]
        return function if (address & ~1) < function.start + function.size else None

    def contents(self) -> Iterator[tuple[int, bytes]]:
        """Yield the address and bytes of each segment."""
        with _opened(self.path) as elf:
            for segment in _loads(elf):
                yield int(segment["p_paddr"]), bytes(segment.data())


def read_firmware(path: Path) -> FirmwareFile:
    """Read the file; raise BundleError where it is no edgekit firmware."""
    with _opened(path) as elf:
        if elf["e_machine"] not in _MACHINES:
            raise ValueError("it is for another processor")
        segments = tuple(Segment(int(s["p_paddr"]), int(s["p_filesz"])) for s in _loads(elf))
        sections = [s for s in elf.iter_sections() if int(s["sh_flags"]) & _ALLOCATED]
        # Only writable segments are in RAM: bit 0.
        ram = sum(int(s["sh_size"]) for s in sections if int(s["sh_flags"]) & 1)
        return FirmwareFile(path, _build_id(elf), segments, ram, _functions(elf), elf["e_machine"])


def _loads(elf: ELFFile) -> list[Any]:
    found = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD" and int(s["p_filesz"])]
    if sum(int(segment["p_filesz"]) for segment in found) > _MOST_BYTES:
        raise ValueError("it is too large")
    return found


def _build_id(elf: ELFFile) -> str:
    section = elf.get_section_by_name(".note.gnu.build-id")
    data = b"" if section is None else bytes(section.data())
    if len(data) != 16 + _BUILD_ID_BYTES:
        raise ValueError("it has no build ID")
    return data[16:].hex()


def _functions(elf: ELFFile) -> tuple[Function, ...]:
    table = elf.get_section_by_name(".symtab")
    if table is None:
        return ()
    found = {
        int(symbol["st_value"]) & ~1: Function(
            "".join(c if c.isprintable() else "?" for c in symbol.name[:200]),
            int(symbol["st_value"]) & ~1,
            int(symbol["st_size"]),
        )
        for symbol in table.iter_symbols()
        if symbol["st_info"]["type"] == "STT_FUNC" and int(symbol["st_size"])
    }
    return tuple(found[start] for start in sorted(found))


@contextmanager
def _opened(path: Path) -> Iterator[ELFFile]:
    from elftools.elf.elffile import ELFFile

    with storage_errors("read the firmware", path), path.open("rb") as stream:
        try:
            yield ELFFile(stream)
        except (EdgekitError, OSError):
            raise
        except Exception as error:  # pyelftools does not document what damaged data raises
            raise BundleError(
                f"{path} is no firmware of edgekit's: {error}", hint="build the bundle again"
            ) from error
