"""A bundle's folder: a library or C, reference vectors, and a manifest with the hashes of both.

Needs no TVM. No bundle is trusted: every path, size and hash is checked when it is opened.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import BundleError, UsageError
from edgekit.base.files import (
    safe_join,
    sha256_bytes,
    sha256_file,
    storage_errors,
    write_atomically,
)
from edgekit.base.options import option
from edgekit.base.tensors import TensorSpec
from edgekit.base.wording import counted, size
from edgekit.bundle.archive import is_archive, unpack_archive
from edgekit.bundle.manifest import (
    MANIFEST_LIMIT,
    MANIFEST_NAME,
    FileEntry,
    FileRole,
    Manifest,
    manifest_text,
    parse_json,
    parse_manifest,
)
from edgekit.bundle.manifest_oracle import OracleEntry
from edgekit.bundle.manifest_runners import RunnerEntry
from edgekit.bundle.manifest_vectors import VectorEntry

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.models.comparison import Leeway


LIBRARY_NAME = "model.so"
TREE_NAME = "c"
"""The folder of a bare-metal bundle for a firmware's project."""


@dataclass(frozen=True)
class Vector:
    """Inputs and their expected outputs."""

    name: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    """The expected outputs; empty without an oracle."""
    leeways: Mapping[str, Leeway]
    """The leeway of each output that rounding inside the model affects."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files all matched its manifest when it was opened."""

    path: Path
    manifest: Manifest
    digest: str
    """The digest of the manifest and through it of every file. It identifies the bundle."""

    @property
    def library(self) -> Path:
        entries = [file for file in self.manifest.files if file.role == "library"]
        if not entries:
            raise BundleError(
                f"{self.path} is for the bare-metal board {self.manifest.board.name}: it holds C "
                "and a firmware, and no library that can be loaded",
                hint=f"{self.tree}/README.md shows how to call the C in your own project; a build "
                "for a Linux board, or for local, makes a library",
            )
        return self.path / entries[0].path

    @property
    def tree(self) -> Path | None:
        """The folder of the model in C, if the bundle is for bare metal."""
        return self.path / TREE_NAME if self.manifest.bare_metal else None

    @property
    def firmware(self) -> Path | None:
        """The program for the board with the model inside, if there is one."""
        entries = [file for file in self.manifest.files if file.role == "firmware"]
        return self.path / entries[0].path if entries else None

    @property
    def code(self) -> tuple[FileEntry, ...]:
        """The files that a device needs: the library, those it loads, and sources to compile."""
        roles = ("library", "shared-library")
        compiled_on_device = {runner.source for runner in self.compiled_there}
        return tuple(
            sorted(
                (
                    file
                    for file in self.manifest.files
                    if file.role in roles or file.path in compiled_on_device
                ),
                key=lambda file: (file.role != "library", file.path),
            )
        )

    @property
    def compiled_there(self) -> tuple[RunnerEntry, ...]:
        """The libraries that the device itself compiles."""
        return tuple(runner for runner in self.manifest.runners if runner.built == "device")

    @contextmanager
    def held_firmware(self) -> Iterator[Path]:
        """Yield a checked copy of the firmware: what is written to the bundle's folder later does
        not reach a board."""
        if self.firmware is None:
            raise BundleError(
                f"the bundle {self.path} has no firmware",
                hint="build it for a bare-metal board; `edgekit boards` lists them",
            )
        with tempfile.TemporaryDirectory(prefix="edgekit-firmware-") as folder:
            copy = Path(folder) / self.firmware.name
            self.copy_file(self.firmware.relative_to(self.path).as_posix(), copy)
            yield copy

    def check_code(self) -> None:
        """Check what a device loads once more; BundleError if it changed since it was opened."""
        for file in self.code:
            self._check(file.path, sha256_file(self.path / file.path))

    def copy_file(self, path: str, target: Path) -> None:
        """Copy one of its files; BundleError if it no longer matches the manifest."""
        shutil.copyfile(self.path / path, target)
        self._check(path, sha256_file(target))

    def _read_file(self, path: str) -> bytes:
        with storage_errors("read the bundle", self.path / path):
            data = (self.path / path).read_bytes()
        self._check(path, sha256_bytes(data))
        return data

    def _read_tensor(self, path: str, spec: TensorSpec) -> Array:
        """Read a reference vector of exactly this dtype and shape. The file is not trusted."""
        from edgekit.base.arrays import as_spec_dtype, numpy_dtype
        from edgekit.base.npy import read_npy, read_npy_header

        dtype = numpy_dtype(spec.dtype)
        stream = io.BytesIO(self._read_file(path))
        try:
            header = read_npy_header(stream)
            if not spec.admits(header.shape) or header.dtype.itemsize != dtype.itemsize:
                raise ValueError(f"it holds {header.dtype}{list(header.shape)}")
            stream.seek(0)
            array = as_spec_dtype(read_npy(stream), spec.dtype)
            if array.dtype != dtype:
                raise ValueError(f"it holds {array.dtype}")
        except ValueError as error:
            raise _damaged(
                self.path,
                f"{path} is not {spec} in .npy form: {error}",
            ) from error
        return array

    def _check(self, path: str, sha256: str) -> None:
        if any(file.path == path and file.sha256 != sha256 for file in self.manifest.files):
            raise _damaged(self.path, f"its file {path} changed after the bundle was opened")

    def reference_inputs(self) -> dict[str, Array]:
        """Return the inputs of the usual vector by name."""
        return self._inputs(self.manifest.vectors[0])

    @property
    def oracle(self) -> OracleEntry:
        """Return who computed the expected outputs; UsageError if the bundle holds none."""
        if self.manifest.oracle is None:
            raise UsageError(
                f"{self.path} was built with {option('no-verify')}: it holds no expected outputs",
                hint=f"build it again without {option('no-verify')}, or verify with "
                f"{option('input')} and {option('model')}",
            )
        return self.manifest.oracle

    def reference_outputs(self) -> dict[str, Array]:
        """Return the expected outputs of the usual inputs; UsageError if the bundle holds none."""
        assert self.oracle
        return self._outputs(self.manifest.vectors[0])

    def vectors(self) -> Iterator[Vector]:
        """Read the vectors one by one, the usual one first; UsageError without expected outputs."""
        assert self.oracle
        for entry in self.manifest.vectors:
            outputs = self._outputs(entry)
            leeways = {
                name: expected.leeway
                for name, expected in zip(outputs, entry.outputs, strict=True)
                if expected.leeway is not None
            }
            yield Vector(entry.name, self._inputs(entry), outputs, leeways)

    def _inputs(self, entry: VectorEntry) -> dict[str, Array]:
        return {
            end.spec.name: self._read_tensor(path, end.spec)
            for end, path in zip(self.manifest.inputs, entry.inputs, strict=True)
        }

    def _outputs(self, entry: VectorEntry) -> dict[str, Array]:
        return {
            end.spec.name: self._read_tensor(expected.file, end.spec)
            for end, expected in zip(self.manifest.outputs, entry.outputs, strict=True)
        }


def looks_like_a_bundle(path: Path) -> bool:
    """Return whether a path is a bundle and not a model file.

    Model files are no folders, and PyTorch's archives have another suffix.
    """
    return path.suffix.lower() == ".zip" or path.is_dir()


def open_bundle(path: Path) -> Bundle:
    """Open a bundle's folder or .zip and check all of it; BundleError if anything is wrong."""
    with storage_errors("open the bundle", path):
        exists, is_file = path.exists(), path.is_file()
    if not exists:
        raise BundleError(f"there is no bundle at {path}", hint="edgekit build MODEL makes one")
    if not is_file:
        return _open_folder(path)
    if not is_archive(path):
        raise BundleError(
            f"{path} is neither a bundle's folder nor its .zip",
            hint="name the folder that edgekit build wrote",
        )
    return unpack_archive(path, _open_folder)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest. Without this last step, a folder is not a bundle."""
    with storage_errors("write the manifest", folder):
        write_atomically(folder / MANIFEST_NAME, manifest_text(manifest))


def describe_file(folder: Path, relative: str, role: FileRole) -> FileEntry:
    file = safe_join(folder, relative)
    return FileEntry(relative, sha256_file(file), file.stat().st_size, role)


def write_tensor(file: Path, array: Array) -> None:
    import numpy as np

    with storage_errors("write the reference vectors", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            np.lib.format.write_array(stream, array, allow_pickle=False)


def copy_bundle(bundle: Bundle, folder: Path) -> None:
    """Copy what belongs to the bundle, and check the copy."""
    with storage_errors("copy the bundle", folder):
        for name in (*(entry.path for entry in bundle.manifest.files), MANIFEST_NAME):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle.path / name, target)
    if _open_folder(folder).digest != bundle.digest:
        raise _damaged(bundle.path, "it changed while it was copied")


def foreign_file(folder: Path) -> str | None:
    """Return a file in `folder` that belongs to no bundle; None if replacing it loses nothing.

    A damaged bundle, or one of another schema version, may be replaced too.
    """
    listed = _listed_files(folder)
    for current, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(current) / name).is_symlink()]
        for name in sorted([*files, *links]):
            relative = (Path(current) / name).relative_to(folder).as_posix()
            if relative not in listed:
                return relative
    return None


def _listed_files(folder: Path) -> frozenset[str]:
    try:
        document = parse_json(_read_manifest_text(folder))
    except BundleError:
        return frozenset()
    if not isinstance(document.get("schema_version"), int):
        return frozenset()
    files = document.get("files")
    paths = [
        file.get("path")
        for file in (files if isinstance(files, list) else ())
        if isinstance(file, dict)
    ]
    return frozenset([MANIFEST_NAME, *(path for path in paths if isinstance(path, str))])


def _open_folder(folder: Path) -> Bundle:
    text = _read_manifest_text(folder)
    manifest = parse_manifest(text)
    for entry in manifest.files:
        _check_file(folder, entry)
    return Bundle(folder, manifest, sha256_bytes(text))


def _read_manifest_text(folder: Path) -> bytes:
    file = folder / MANIFEST_NAME
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            raise BundleError(
                f"{file} is not a regular file",
                hint="get the bundle again from the person who built it",
            )
    except OSError as error:
        raise BundleError(
            f"{folder} is not a bundle: it has no {MANIFEST_NAME}",
            hint="name the folder that edgekit build wrote",
        ) from error
    with storage_errors("read the manifest", file), file.open("rb") as stream:
        text = stream.read(MANIFEST_LIMIT + 1)
    if len(text) > MANIFEST_LIMIT:
        raise BundleError(
            f"{file} is larger than {size(MANIFEST_LIMIT)}, which no manifest is",
            hint="get the bundle again from the person who built it",
        )
    return text


def _check_file(folder: Path, entry: FileEntry) -> None:
    file = safe_join(folder, entry.path)
    try:
        found = file.lstat()
    except OSError as error:
        raise _damaged(folder, f"its file {entry.path} is missing") from error
    if not stat.S_ISREG(found.st_mode):
        raise _damaged(folder, f"its {entry.path} is not a regular file")
    if found.st_size != entry.size:
        raise _damaged(
            folder,
            f"its file {entry.path} has {counted(found.st_size, 'byte')}, the manifest says "
            f"{entry.size:,}",
        )
    with storage_errors("read the bundle", file):
        digest = sha256_file(file)
    if digest != entry.sha256:
        raise _damaged(folder, f"the SHA-256 of its file {entry.path} is not the manifest's")


def _damaged(folder: Path, what: str) -> BundleError:
    return BundleError(
        f"the bundle {folder} is damaged: {what}",
        hint="build it again, or get it again from the person who built it",
    )
