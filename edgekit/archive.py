"""A bundle as one .zip: the same bytes for the same bundle, unpacked without trust."""

from __future__ import annotations

import lzma
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from edgekit.cache import BuildCache
from edgekit.errors import BundleError
from edgekit.files import replace_file, safe_join, sha256_bytes, sha256_file, storage_errors
from edgekit.manifest import MANIFEST_LIMIT, MANIFEST_NAME, Manifest, parse_manifest

T = TypeVar("T")

_BLOCK = 1 << 20
_MOST_ENTRIES = 10_000
_SMALL = 64 << 20
_MOST_EXPANSION = 100
"""How many times its own size an archive may unpack to, beyond `_SMALL`. Ours are not packed."""


def write_archive(folder: Path, manifest: Manifest, file: Path) -> None:
    """Write the bundle in `folder` as `file`, in one step."""
    write_zip(folder, (MANIFEST_NAME, *(entry.path for entry in manifest.files)), file)


def write_zip(folder: Path, names: Sequence[str], file: Path) -> None:
    """Write these files of a folder as one, in one step, the same bytes each time.

    Stored, not deflated: weights hardly shrink, and what zlib makes depends on its version.
    """
    with (
        storage_errors("write the archive", file),
        replace_file(file) as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name in names:
            source = folder / name
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            info.file_size = source.stat().st_size
            with source.open("rb") as content, archive.open(info, "w") as packed:
                shutil.copyfileobj(content, packed, _BLOCK)


def is_archive(file: Path) -> bool:
    with storage_errors("read", file):
        return zipfile.is_zipfile(file)


def unpack_archive(file: Path, check: Callable[[Path], T]) -> T:
    """Unpack into the cache, once for the same bytes; gives what `check` says of the folder.

    `check` raises BundleError for a folder that is no whole bundle; none such is kept.
    """
    with storage_errors("read the archive", file):
        key = sha256_bytes(f"unpacked {sha256_file(file)}".encode())
    cache = BuildCache()
    with cache.locked(key):
        found = cache.find(key)
        if found is not None:
            try:
                return check(found)
            except BundleError:
                cache.forget(key)
        with cache.storing(key, "unpacked", file.name) as folder:
            _unpack(file, folder)
            check(folder)
        return check(cache.content(key))


def _unpack(file: Path, folder: Path) -> None:
    with storage_errors("read the archive", file), file.open("rb") as stream:
        with _decoding(file):
            archive = zipfile.ZipFile(stream)
        members = _members(archive, file)
        manifest = parse_manifest(_read_manifest(archive, members, file))
        _check_members(members, manifest, file)
        for name, info in members.items():
            target = safe_join(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as unpacked:
                for block in _blocks(archive, info, file):
                    unpacked.write(block)


@contextmanager
def _decoding(file: Path) -> Iterator[None]:
    """Around what takes the archive's bytes apart: damage makes zipfile raise all of these."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        NotImplementedError,
        OSError,  # seeking to where no file reaches
        OverflowError,
        RuntimeError,
        struct.error,
        ValueError,
    ) as error:
        raise BundleError(
            f"{file} is a damaged .zip: {str(error)[:200]}",
            hint="get the archive again from whoever built it",
        ) from error


def _members(archive: zipfile.ZipFile, file: Path) -> dict[str, zipfile.ZipInfo]:
    """The files in the archive by name, none of them strange."""
    infos = archive.infolist()
    if len(infos) > _MOST_ENTRIES:
        _refuse(file, f"holds {len(infos)} files")
    total = sum(info.file_size for info in infos)
    if total > max(_SMALL, _MOST_EXPANSION * file.stat().st_size):
        _refuse(file, f"would unpack to {total} bytes, more than {_MOST_EXPANSION} times its size")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        shown = ascii(info.filename)[:120]
        if not info.filename:
            _refuse(file, "holds a file without a name")
        if info.is_dir():
            continue  # an empty folder; those that matter are made with their files
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            _refuse(file, f"holds {shown}, which is a link or a device and not a file")
        if info.flag_bits & 1:
            _refuse(file, f"holds {shown}, which is encrypted")
        if info.filename in members:
            _refuse(file, f"holds {shown} twice")
        members[info.filename] = info
    return members


def _read_manifest(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], file: Path
) -> bytes:
    info = members.get(MANIFEST_NAME)
    if info is None:
        _refuse(file, f"is not a bundle: it has no {MANIFEST_NAME}")
    if info.file_size > MANIFEST_LIMIT:
        _refuse(file, "has a manifest larger than any manifest is")
    return b"".join(_blocks(archive, info, file))


def _check_members(members: dict[str, zipfile.ZipInfo], manifest: Manifest, file: Path) -> None:
    sizes = {entry.path: entry.size for entry in manifest.files}
    for name, info in members.items():
        if name != MANIFEST_NAME and name not in sizes:
            _refuse(file, f"holds {ascii(name)[:120]}, which its manifest does not name")
        if name in sizes and info.file_size != sizes[name]:
            _refuse(file, f"holds {ascii(name)[:120]} in another size than its manifest says")
    for name in sizes:
        if name not in members:
            _refuse(file, f"lacks {ascii(name)[:120]}, which its manifest names")


def _blocks(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: Path) -> Iterator[bytes]:
    """The content of one member, never more than it said it has."""
    left = info.file_size
    with _decoding(file):
        packed = archive.open(info)
    with packed:
        while True:
            with _decoding(file):
                block = packed.read(min(_BLOCK, left + 1))
            if not block:
                return
            left -= len(block)
            if left < 0:
                _refuse(file, f"holds {ascii(info.filename)[:120]}, which is longer than it says")
            yield block


def _refuse(file: Path, what: str) -> NoReturn:
    raise BundleError(
        f"the archive {file} {what}", hint="get the bundle again from whoever built it"
    )
