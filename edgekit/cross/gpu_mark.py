"""What a library says of itself before TVM loads it: that its kernels run on a GPU.

TVM's runtime for CUDA has to be there first, and on a board without one nobody should ask for it.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.base.files import storage_errors
from edgekit.profiles.cpu import Target

MARK = "edgekit_runs_on_cuda"
"""The symbol that says so: a device looks for it with dlsym."""
_CODE = f"{MARK}.c"


def write_mark(target: Target, folder: Path) -> tuple[str, ...]:
    """Write into `folder` what is to be linked into the library; gives the source's name."""
    if target.gpu is None:
        return ()
    code = f'__attribute__((visibility("default"))) const char {MARK}[] = "{target.gpu}";\n'
    with storage_errors("write the library's mark", folder):
        (folder / _CODE).write_text(code, encoding="ascii")
    return (_CODE,)
