"""The library's files that a tree needs."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.aot.kernel import Kernel
from edgekit.aot.tree import Library
from edgekit.cross.cmsis_nn import CmsisNn


def library_of(kernels: Sequence[Kernel], found: CmsisNn) -> tuple[Library, ...]:
    """Return the library's files; nothing where no kernel calls it."""
    sources = {path for kernel in kernels if kernel.library for path in kernel.library.sources}
    if not sources:
        return ()
    files = found.with_headers(sources)
    includes = sorted({path.partition("/")[0] for path in files if path.endswith(".h")})
    return (
        Library(
            "cmsis-nn", found.version, files, tuple(includes), "Apache-2.0", found.license_text
        ),
    )
