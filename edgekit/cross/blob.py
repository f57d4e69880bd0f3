"""Bytes as data of a library, included by the assembler in seconds at any size.

A C array of 4 MB takes a compiler many seconds and hundreds of megabytes. The assembly works with
GNU's assembler and LLVM's, for x86, Arm and RISC-V, on Linux and on bare metal. WebAssembly has a
form of its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from edgekit.base.files import sha256_file

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECTION = re.compile(r"\.[A-Za-z0-9_.]+")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]*")

BlobForm = Literal["elf", "wasm"]

SECTION = ".weights"
"""The section of blobs in a shared library, which tells their size."""


def write_blob(
    folder: Path, symbol: str, file: str, *, alignment: int = 64, form: BlobForm = "elf"
) -> str:
    """Write the assembly for a file in `folder`; return its name.

    It tells the file's hash: a compiler that keeps results by their source, as Zig's does, would
    give what another file of that name was.
    """
    name = f"{Path(file).stem}.S"
    if form == "wasm":
        size = (folder / file).stat().st_size
        text = _wasm_assembly(symbol, file, size, alignment)
    else:
        text = blob_assembly(symbol, file, alignment=alignment)
    text = f"/* {sha256_file(folder / file)} */\n{text}"
    (folder / name).write_text(text, encoding="ascii")
    return name


def blob_assembly(symbol: str, file: str, *, alignment: int = 64, section: str = SECTION) -> str:
    """Return assembly (for a `.S` file) that makes the content of `file` read-only data.

    In C it is `extern const unsigned char SYMBOL[];`, visible inside the library only. `file` is
    relative to the compiler's folder; its name does not get into the output. Firmware needs the
    section `.rodata.SYMBOL`, because its linker places only the sections of its script.
    """
    _check(symbol, file, section, alignment)
    lines = [
        f'.section {section},"a",%progbits',
        f".balign {alignment}",
        f".global {symbol}",
        f".hidden {symbol}",
        f".type {symbol}, %object",
        f"{symbol}:",
        f'.incbin "{file}"',
        f".size {symbol}, . - {symbol}",
        # Without it linkers assume that the file needs an executable stack.
        '.section .note.GNU-stack,"",%progbits',
    ]
    return "".join(f"{line}\n" for line in lines)


def _wasm_assembly(symbol: str, file: str, size: int, alignment: int) -> str:
    _check(symbol, file, SECTION, alignment)
    lines = [
        f'.section .rodata.{symbol},"",@',
        f".balign {alignment}",
        f".globl {symbol}",
        f".hidden {symbol}",
        f".type {symbol},@object",
        f"{symbol}:",
        f'.incbin "{file}"',
        f".size {symbol}, {size}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _check(symbol: str, file: str, section: str, alignment: int) -> None:
    names = (_SYMBOL.fullmatch(symbol), _FILE.fullmatch(file), _SECTION.fullmatch(section))
    if not all(names):
        raise ValueError(f"{symbol!r}, {file!r} or {section!r} can't be written in assembly")
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"an alignment is a power of two, not {alignment}")
