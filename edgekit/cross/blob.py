"""Bytes as data of a library: put in place by the assembler, in seconds for any size.

A C array of 4 MB takes a compiler many seconds and hundreds of megabytes. The assembly here is
understood by GNU's assembler and LLVM's, for x86, Arm and RISC-V, on Linux and on bare metal.
"""

from __future__ import annotations

import re

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECTION = re.compile(r"\.[A-Za-z0-9_.]+")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]*")

SECTION = ".weights"
"""Where a shared library has its blobs, so that whoever looks can tell how much of it they are."""


def blob_assembly(symbol: str, file: str, *, alignment: int = 64, section: str = SECTION) -> str:
    """Assembly (for a file ending in `.S`) that makes the content of `file` read-only data.

    In C it is `extern const unsigned char SYMBOL[];`, known inside the library only. `file` is
    relative to the folder that the compiler runs in: its name is not written down anywhere.
    Firmware, whose linker places only sections that it has been told of, wants `section` to be
    `.rodata.SYMBOL`.
    """
    names = (_SYMBOL.fullmatch(symbol), _FILE.fullmatch(file), _SECTION.fullmatch(section))
    if not all(names):
        raise ValueError(f"{symbol!r}, {file!r} or {section!r} can't be written in assembly")
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"an alignment is a power of two, not {alignment}")
    lines = [
        f'.section {section},"a",%progbits',
        f".balign {alignment}",
        f".global {symbol}",
        f".hidden {symbol}",
        f".type {symbol}, %object",
        f"{symbol}:",
        f'.incbin "{file}"',
        f".size {symbol}, . - {symbol}",
        # Without it linkers take the file for one that wants an executable stack.
        '.section .note.GNU-stack,"",%progbits',
    ]
    return "".join(f"{line}\n" for line in lines)
