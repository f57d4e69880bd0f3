"""Bytes as data of a library, through every assembler that a board's toolchain may bring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from support.needs import needs

from edgekit.cross.blob import blob_assembly, write_blob

COMPILERS = (
    "gcc",
    pytest.param("aarch64-linux-gnu-gcc", marks=needs("g++-aarch64")),
    pytest.param("arm-none-eabi-gcc", marks=needs("gcc-arm")),
    pytest.param("clang", marks=needs("clang")),
)
CONTENT = bytes(range(256)) * 5 + b"odd"


def assembled(compiler: str, folder: Path, *, alignment: int) -> ELFFile:
    """An object file with a blob of an odd size before the one that is looked at."""
    (folder / "odd.bin").write_bytes(b"x")
    (folder / "content.bin").write_bytes(CONTENT)
    text = blob_assembly("before", "odd.bin") + blob_assembly(
        "blob", "content.bin", alignment=alignment
    )
    (folder / "blob.S").write_text(text)
    subprocess.run([compiler, "-c", "blob.S", "-o", "blob.o"], cwd=folder, check=True)
    return ELFFile((folder / "blob.o").open("rb"))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_blob_is_aligned_read_only_data_that_only_its_library_sees(
    compiler: str, tmp_path: Path
) -> None:
    elf = assembled(compiler, tmp_path, alignment=64)

    (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name("blob")
    section = elf.get_section(symbol["st_shndx"])
    start = symbol["st_value"]
    assert section.data()[start : start + symbol["st_size"]] == CONTENT
    assert (section["sh_addralign"], start % 64) == (64, 0)
    assert section["sh_flags"] == 0x2, "allocated; neither writable nor executable"
    assert symbol["st_info"] == {"bind": "STB_GLOBAL", "type": "STT_OBJECT"}
    assert symbol["st_other"]["visibility"] == "STV_HIDDEN"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_blob_asks_for_no_executable_stack(compiler: str, tmp_path: Path) -> None:
    note = assembled(compiler, tmp_path, alignment=16).get_section_by_name(".note.GNU-stack")

    assert note is not None
    assert note["sh_flags"] == 0


@pytest.mark.parametrize(
    ("symbol", "file", "alignment"),
    [
        ("9lives", "a.bin", 64),
        ("a.b", "a.bin", 64),
        ("", "a.bin", 64),
        ("blob", 'a".bin', 64),
        ("blob", "a\n.bin", 64),
        ("blob", "/etc/passwd", 64),
        ("blob", "", 64),
        ("blob", "a.bin", 48),
        ("blob", "a.bin", 0),
    ],
)
def test_what_would_be_other_assembly_is_refused(symbol: str, file: str, alignment: int) -> None:
    with pytest.raises(ValueError, match=r"can't be written|power of two"):
        blob_assembly(symbol, file, alignment=alignment)


@pytest.mark.parametrize(
    "compiler",
    [
        ("gcc",),
        pytest.param(
            (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu"),
            marks=needs("zig"),
        ),
    ],
)
def test_another_content_under_the_same_name_is_another_object(
    compiler: tuple[str, ...], tmp_path: Path
) -> None:
    """Zig's compiler keeps results by their source, and does not look at included files."""
    for content in (CONTENT, CONTENT[::-1]):
        (tmp_path / "blob.bin").write_bytes(content)
        source = write_blob(tmp_path, "blob", "blob.bin")
        command = (*compiler, "-c", source, "-o", "blob.o")
        subprocess.run(command, cwd=tmp_path, check=True)
        assert content in (tmp_path / "blob.o").read_bytes()


def test_firmware_chooses_the_section() -> None:
    assert '.section .rodata.blob,"a"' in blob_assembly("blob", "b.bin", section=".rodata.blob")
    with pytest.raises(ValueError, match="can't be written"):
        blob_assembly("blob", "b.bin", section='.a,"awx"')
