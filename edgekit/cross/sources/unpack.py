"""Unpacks untrusted archives: plain files and folders only, and only inside the given folder."""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from edgekit.base.errors import BuildError
from edgekit.base.files import copy_tree
from edgekit.base.zip_reader import ZipError, read_zip, spelling

_MOST_MEMBERS = 100_000
_LARGEST = 4 << 30
"""The limit of all content together, in bytes."""
_DAMAGE = (
    *(ZipError, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(EOFError, FileExistsError, NotADirectoryError, IsADirectoryError, ValueError, OverflowError),
)
"""The exceptions of Python's readers for damaged archives."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .tar.*, .zip or .whl into an empty folder."""
    with _archive_errors(archive):
        if archive.name.endswith((".whl", ".zip")):
            _unpack_zip(archive, folder)
        else:
            _unpack_tar(archive, folder)


def take(tree: Path, wanted: Mapping[str, str], library: Path, origin: str) -> None:
    """Copy the files of a library from a tree; links are followed within the tree."""
    root = tree.resolve()
    for source, target in wanted.items():
        found = tree / source
        if not found.exists() or not found.resolve().is_relative_to(root):
            raise BuildError(
                f"{origin} has no {source}", hint="the recipe's `take` and the archive must agree"
            )
        destination = library / target
        destination.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            copy_tree(found, destination)
        else:
            shutil.copyfile(found, destination)


def _unpack_tar(archive: Path, folder: Path) -> None:
    total = 0
    seen: set[str] = set()
    with tarfile.open(archive) as tar:
        for count, member in enumerate(tar):
            total += max(member.size, 0)
            if count >= _MOST_MEMBERS or total > _LARGEST:
                raise _refused(archive, "it holds more than any library's source does")
            target = _target(archive, folder, member.name)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            if not member.isfile() or member.issparse():
                raise _refused(archive, f"{member.name[:100]!r} in it is neither file nor folder")
            if spelling(member.name) in seen:
                raise _refused(archive, f"it holds {member.name[:100]!r} twice")
            seen.add(spelling(member.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            source = tar.extractfile(member)
            assert source is not None
            with source, target.open("xb") as stream:
                shutil.copyfileobj(source, stream)
            if member.mode & 0o100:
                target.chmod(0o755)


def _unpack_zip(archive: Path, folder: Path) -> None:
    with archive.open("rb") as stream:
        members = read_zip(stream)
        if sum(member.size for member in members.values()) > _LARGEST:
            raise _refused(archive, "it holds more than any library's source does")
        for name, member in members.items():
            target = _target(archive, folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as unpacked:
                unpacked.writelines(member.blocks())


def _target(archive: Path, folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
        raise _refused(archive, f"{name[:100]!r} in it leads out of the folder")
    return folder.joinpath(*path.parts)


@contextmanager
def _archive_errors(archive: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise _refused(archive, f"it is damaged ({error})") from error


def _refused(archive: Path, why: str) -> BuildError:
    return BuildError(
        f"{archive.name} cannot be unpacked: {why}", hint="check the archive that the recipe pins"
    )
