"""Finds programs, never in the current folder, which may be a project that a stranger wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

_SEARCH_PATHS = (
    *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "MANPATH", "INFOPATH"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH"),
    *("GCC_EXEC_PREFIX", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "CMAKE_PREFIX_PATH"),
    *("CMAKE_PROGRAM_PATH", "CMAKE_INCLUDE_PATH", "CMAKE_LIBRARY_PATH", "CMAKE_MODULE_PATH"),
    *("OPENOCD_SCRIPTS", "QEMU_MODULE_DIR", "GCONV_PATH", "PERL5LIB", "TCLLIBPATH"),
)
"""Variables that list folders. Most programs take an empty entry for the current folder."""

_APART_BY_SPACES = ("TCLLIBPATH",)


def with_absolute_paths(environment: Mapping[str, str]) -> dict[str, str]:
    """Drop empty and relative entries from the lists of folders: both mean the current folder."""
    found = dict(environment)
    for name in _SEARCH_PATHS:
        if name not in found:
            continue
        mark = " " if name in _APART_BY_SPACES else os.pathsep
        kept = _absolute(found[name], mark)
        if kept:
            found[name] = mark.join(kept)
        else:
            del found[name]
    found.setdefault("PATH", os.defpath)
    return found


def find_program(name: str, more: Iterable[str] = ()) -> Path | None:
    """Find a program by its absolute path, or in the absolute folders of PATH, then in `more`."""
    if os.sep in name and not Path(name).is_absolute():
        return None
    folders = [*_absolute(os.environ.get("PATH", os.defpath)), *more]
    found = shutil.which(name, path=os.pathsep.join(folders)) if name else None
    return Path(found) if found else None


def _absolute(folders: str, mark: str = os.pathsep) -> list[str]:
    return [entry for entry in folders.split(mark) if Path(entry).is_absolute()]
