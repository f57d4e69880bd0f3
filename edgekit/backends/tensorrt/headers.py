"""Where TensorRT's headers are: a region is compiled against them, and linked with nothing."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import MissingToolError
from edgekit.files import sha256_file

if TYPE_CHECKING:
    from edgekit.board import Board
    from edgekit.cross.sources import BuiltLibrary
    from edgekit.cross.toolchain import Toolchain

VARIABLE = "TENSORRT_INCLUDE"
_WANTED = ("NvInfer.h", "NvOnnxParser.h", "cuda_runtime_api.h")
_VERSION = "NvInferVersion.h"
_IN_SYSROOT = ("usr/include/{triple}", "usr/include", "usr/local/cuda/include")
_DEFINED = re.compile(
    r"#define\s+(?:NV_TENSORRT|TRT)_(MAJOR|MINOR|PATCH)(?:_ENTERPRISE)?\s+([0-9]+)"
)


@dataclass(frozen=True)
class Headers:
    folders: tuple[Path, ...]
    version: str
    """10.3.0: the major of what the device has to have."""
    identity: str
    """Of the headers that decide the compiled code."""


def find_headers(board: Board, toolchain: Toolchain) -> Headers:
    """In the folders that TENSORRT_INCLUDE names, or in the toolchain's sysroot."""
    folders = _folders(toolchain, board.target.triple)
    places = {name: _place(folders, name) for name in (*_WANTED, _VERSION)}
    missing = [name for name, place in places.items() if place is None]
    if missing:
        raise _nothing_found(board, missing, folders)
    found = {name: place for name, place in places.items() if place is not None}
    version = _version(found[_VERSION].read_text(encoding="utf-8", errors="replace"))
    digest = hashlib.sha256()
    for name, place in found.items():
        digest.update(f"{name} {sha256_file(place)}\n".encode())
    used = tuple(dict.fromkeys(place.parent for place in found.values()))
    return Headers(used, version, f"tensorrt {version} {digest.hexdigest()}")


def library_of(board: Board, toolchain: Toolchain) -> BuiltLibrary:
    """Nothing to link: the runner looks for the device's own libraries when it starts."""
    from edgekit.cross.sources import BuiltLibrary

    headers = find_headers(board, toolchain)
    major = headers.version.partition(".")[0]
    return BuiltLibrary(
        name="tensorrt",
        version=headers.version,
        digest=headers.identity,
        include=headers.folders,
        link=("-ldl",),
        run_time=(),
        needs=(f"libnvinfer.so.{major}", f"libnvonnxparser.so.{major}"),
        folder=headers.folders[0],
        from_cache=True,
    )


def _folders(toolchain: Toolchain, triple: str) -> tuple[Path, ...]:
    said = tuple(Path(word) for word in os.environ.get(VARIABLE, "").split(os.pathsep) if word)
    if toolchain.sysroot is None:
        return said
    root = Path(toolchain.sysroot)
    return (*said, *(root / place.format(triple=triple) for place in _IN_SYSROOT))


def _place(folders: tuple[Path, ...], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _version(text: str) -> str:
    parts = dict(_DEFINED.findall(text))
    return ".".join(parts.get(part, "0") for part in ("MAJOR", "MINOR", "PATCH"))


def _nothing_found(board: Board, missing: list[str], folders: tuple[Path, ...]) -> MissingToolError:
    looked = ", ".join(str(folder) for folder in folders)
    why = f"no {', '.join(missing)} in {looked}" if looked else f"{VARIABLE} is not set"
    return MissingToolError(
        f"a bundle for {board.name} with TensorRT can't be built on this machine: {why}",
        hint=f"set {VARIABLE} to the folders with NvInfer.h, NvOnnxParser.h and "
        f"cuda_runtime_api.h of the board's JetPack ({os.pathsep!r} between them), or give its "
        "toolchain a sysroot; edgekit partition and edgekit recommend need neither",
    )
