"""Find TensorRT's headers: the runner is compiled against them, and linked with nothing.

If the host lacks them, the runner is compiled on the device with the device's own headers.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.tensorrt.places import DEVICE_BUILD
from edgekit.base.errors import MissingToolError
from edgekit.base.files import sha256_file
from edgekit.base.paths import named_folders
from edgekit.compiler.cuda.toolkit import find_toolkit

if TYPE_CHECKING:
    from edgekit.cross.sources import BuiltLibrary
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain

VARIABLE = "TENSORRT_INCLUDE"
_PACKAGES = "libnvinfer-headers-dev and libnvonnxparsers-dev"
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
    """The version, such as 10.3.0; the device needs the same major version."""
    identity: str
    """The digest of the headers that decide the compiled code."""


def find_headers(board: Board, toolchain: Toolchain) -> Headers | None:
    """Find the headers in the folders of TENSORRT_INCLUDE, in the toolchain's sysroot, or on this
    machine if it is the device; return None if the device must have them. MissingToolError if this
    machine is the device, or if TENSORRT_INCLUDE lacks some of them."""
    folders = _folders(toolchain, board.target.triple)
    if board.is_host:
        folders = (*folders, *_of_this_machine())
    places = {name: _place(folders, name) for name in (*_WANTED, _VERSION)}
    missing = [name for name, place in places.items() if place is None]
    if missing and not board.is_host and not os.environ.get(VARIABLE):
        return None
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
    """Return a library with nothing to compile against or link: a region loads the runner at its
    first call, and the runner loads the device's libraries."""
    from edgekit.cross.sources import BuiltLibrary

    headers = find_headers(board, toolchain)
    version = headers.version if headers else "the device's own"
    ending = f".{headers.version.partition('.')[0]}" if headers else ""
    return BuiltLibrary(
        name="tensorrt",
        version=version,
        digest=headers.identity if headers else version,
        include=(),
        link=("-ldl",),
        run_time=(),
        needs=(f"libnvinfer.so{ending}", f"libnvonnxparser.so{ending}"),
        folder=Path(__file__).parent,
        from_cache=True,
    )


def _folders(toolchain: Toolchain, triple: str) -> tuple[Path, ...]:
    said = named_folders(VARIABLE)
    if toolchain.sysroot is None:
        return said
    root = Path(toolchain.sysroot)
    return (*said, *(root / place.format(triple=triple) for place in _IN_SYSROOT))


def _of_this_machine() -> Iterator[Path]:
    """Yield the folders in which a device would look, and that of NVIDIA's package of headers."""
    for pattern in DEVICE_BUILD.folders:
        yield from sorted(Path("/").glob(pattern.removeprefix("/")))
    with suppress(MissingToolError):
        yield find_toolkit().include


def _place(folders: tuple[Path, ...], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _version(text: str) -> str:
    parts = dict(_DEFINED.findall(text))
    return ".".join(parts.get(part, "0") for part in ("MAJOR", "MINOR", "PATCH"))


def _nothing_found(board: Board, missing: list[str], folders: tuple[Path, ...]) -> MissingToolError:
    if board.is_host and not os.environ.get(VARIABLE):
        return MissingToolError(
            f"what speaks to TensorRT on {board.name} can't be compiled: there is no "
            f"{', '.join(missing)}",
            hint=f"install {_PACKAGES} from NVIDIA's repository, or set {VARIABLE} to folders with "
            f"them ({os.pathsep!r} between them)",
        )
    looked = ", ".join(str(folder) for folder in folders)
    why = f"no {', '.join(missing)} in {looked}" if looked else f"{VARIABLE} is not set"
    return MissingToolError(
        f"what speaks to TensorRT on {board.name} can't be compiled on this machine: {why}",
        hint=f"set {VARIABLE} to the folders with NvInfer.h, NvOnnxParser.h and "
        f"cuda_runtime_api.h of the board's JetPack ({os.pathsep!r} between them), or give its "
        f"toolchain a sysroot; without {VARIABLE} a board far away compiles it itself",
    )
