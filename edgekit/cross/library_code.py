"""Small C sources that are linked into a model's library: the function that kernels call with an
index outside of a tensor."""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path

from edgekit.base.files import storage_errors

_INTERFACE = b"\0edgekit_model_info\0"
"""The entry of the interface's first function among a library's names."""

INDEX_ERROR = "edgekit_index_error"
"""The function that raises. It takes the index tensor's name, the value, the least and the largest
one allowed."""

OUTSIDE = "which is outside of"
"""The words that identify the error."""

_INDEX_CODE = f"""\
#include <stdio.h>
#include <tvm/ffi/c_api.h>

__attribute__((visibility("hidden"))) int
{INDEX_ERROR}(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {{
  char text[512];
  (void)self;
  (void)result;
  if (count != 4 || args[0].type_index != kTVMFFIRawStr) return -1;
  snprintf(text, sizeof text, "'%.300s' holds the index %lld, {OUTSIDE} %lld to %lld",
           args[0].v_c_str, (long long)args[1].v_int64, (long long)args[2].v_int64,
           (long long)args[3].v_int64);
  TVMFFIErrorSetRaisedFromCStr("IndexError", text);
  return -1;
}}
"""


def is_program(library: Path) -> bool:
    """Return whether a library is a program with a C interface. It is not loaded: one for TVM's
    virtual machine may need TVM's runtime first."""
    with library.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(_INTERFACE) >= 0


def write_index_error(folder: Path) -> tuple[str, ...]:
    """Write the source that a library with checked indices needs, and return its name."""
    return (_write(folder / f"{INDEX_ERROR}.c", _INDEX_CODE),)


def _write(file: Path, code: str) -> str:
    with storage_errors("write a source of the library", file.parent):
        file.write_text(code, encoding="ascii")
    return file.name
