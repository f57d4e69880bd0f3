"""The formats of files that can run code: what reads them, and whether the user agreed to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from edgekit.base.consent import Effect
from edgekit.base.files import sha256_bytes, sha256_file
from edgekit.base.trust import require_trust
from edgekit.base.zip_reader import ZipError, read_zip

ForeignFormat = Literal["torchscript", "keras", "savedmodel"]


@dataclass(frozen=True)
class Loader:
    """The library that loads a format."""

    name: str
    """The format, as users call it."""
    packages: tuple[str, ...]
    """The packages that load and convert it; without one of them it is refused."""
    becomes: Literal["torch", "tflite"]
    suffix: str
    effect: str
    """The risk that the user agrees to."""


LOADERS: Mapping[ForeignFormat, Loader] = {
    "torchscript": Loader(
        "TorchScript",
        ("torch", "onnxscript"),
        "torch",
        ".pt2",
        "PyTorch loads and runs this program, which can read and write files",
    ),
    "keras": Loader(
        "Keras",
        ("keras", "torch", "onnxscript"),
        "torch",
        ".pt2",
        "Keras loads and runs this model, which can hold any Python code",
    ),
    "savedmodel": Loader(
        "SavedModel",
        ("tensorflow", "tflite"),
        "tflite",
        ".tflite",
        "TensorFlow loads and runs this model, which can read and write files",
    ),
}
_HDF5 = b"\x89HDF\r\n\x1a\n"


def foreign_format(path: Path) -> ForeignFormat | None:
    """Return the format of a file or folder that an installed library can load; None for others."""
    found = _format_of(path)
    if found is None or any(find_spec(package) is None for package in LOADERS[found].packages):
        return None
    return found


def require_consent(path: Path, kind: ForeignFormat, files: Sequence[Path]) -> None:
    """Raise UntrustedProjectError unless the user agreed to load this very file."""
    require_trust(path, effects_of_model(kind, files))


def model_effects(path: Path) -> tuple[Effect, ...]:
    """List what a model makes edgekit run; nothing for files that it reads without running them."""
    kind = _format_of(path)
    if kind is None:
        return ()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return effects_of_model(kind, files)


def effects_of_model(kind: ForeignFormat, files: Sequence[Path]) -> tuple[Effect, ...]:
    digest = sha256_bytes("".join(map(sha256_file, files)).encode())
    return (Effect("sha256", json.dumps(digest), LOADERS[kind].effect),)


def _format_of(path: Path) -> ForeignFormat | None:
    if path.is_dir():
        return "savedmodel" if (path / "saved_model.pb").is_file() else None
    suffix = path.suffix.lower()
    if suffix in (".pt", ".pth"):
        return "torchscript" if is_torch_script(path) else None
    if suffix == ".keras":
        return "keras" if "config.json" in _members(path) else None
    return "keras" if suffix in (".h5", ".hdf5") and _begins(path, _HDF5) else None


def is_torch_script(path: Path) -> bool:
    """Look at the names in the archive; nothing of it is loaded."""
    return any(name.endswith("/constants.pkl") for name in _members(path))


def _members(path: Path) -> tuple[str, ...]:
    try:
        with path.open("rb") as stream:
            return tuple(read_zip(stream))
    except (OSError, ZipError):
        return ()


def _begins(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(mark)) == mark
    except OSError:
        return False
