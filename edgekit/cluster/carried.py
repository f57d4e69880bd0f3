"""Objects with paths in them, in a form for another host.

A path below a known folder travels as the folder's name and the rest, and becomes one below the
folder that has this name there. Both ends show certificates of one cluster before they read.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.base.files import safe_join
from edgekit.base.paths import PACKAGE, cache_dir


def pack(item: object, folders: Mapping[str, Path]) -> bytes:
    """Pickle an object; paths below `folders` become relative to them."""
    stream = io.BytesIO()
    _Packer(stream, folders).dump(item)
    return stream.getvalue()


def unpack(data: bytes, folders: Mapping[str, Path]) -> Any:
    """Return an object that `pack` made, with paths below this host's `folders`."""
    return _Unpacker(io.BytesIO(data), folders).load()


def _known(folders: Mapping[str, Path]) -> dict[str, Path]:
    return {**folders, "package": PACKAGE, "cache": cache_dir()}


class _Packer(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, folders: Mapping[str, Path]) -> None:
        super().__init__(stream, protocol=5)
        self._folders = {str(path): name for name, path in _known(folders).items()}

    def persistent_id(self, item: object) -> tuple[str, str, bool] | None:
        if not isinstance(item, (str, Path)):
            return None
        text = str(item)
        if not text.startswith("/"):
            return None
        for folder, name in self._folders.items():
            if text == folder or text.startswith(folder + "/"):
                return name, text[len(folder) + 1 :], isinstance(item, Path)
        return None


class _Unpacker(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, folders: Mapping[str, Path]) -> None:
        super().__init__(stream)
        self._folders = _known(folders)

    def persistent_load(self, mark: tuple[str, str, bool]) -> Path | str:
        name, rest, is_path = mark
        path = safe_join(self._folders[name], rest) if rest else self._folders[name]
        return path if is_path else str(path)
