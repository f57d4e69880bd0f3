"""The function that a library's kernels call with an index outside of a tensor."""

from __future__ import annotations

from pathlib import Path

from edgekit.base.files import storage_errors

INDEX_ERROR = "edgekit_index_error"
"""Takes the index tensor's name, the value, the least and the largest one allowed; raises."""

OUTSIDE = "which is outside of"
"""Words of the error, by which it is known."""

_FILE = "edgekit_index_error.c"
_CODE = f"""\
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


def write_index_error(folder: Path) -> tuple[str, ...]:
    """Write what is to be linked into a library whose kernels check indices."""
    with storage_errors("write the check of indices", folder):
        (folder / _FILE).write_text(_CODE, encoding="ascii")
    return (_FILE,)
