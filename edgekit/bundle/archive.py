"""Writes a bundle as one .zip, with equal bytes for equal bundles, and unpacks untrusted ones."""

from __future__ import annotations

import shutil
import stat
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeVar

from edgekit.base.cache import BuildCache
from edgekit.base.errors import BundleError
from edgekit.base.files import replace_file, safe_join, sha256_bytes, sha256_stream, storage_errors
from edgekit.base.zip_reader import ZipError, ZipMember, read_zip
from edgekit.bundle.manifest import MANIFEST_LIMIT, MANIFEST_NAME, Manifest, parse_manifest

T = TypeVar("T")

_BLOCK = 1 << 20
_BEGINNINGS = (b"PK\3\4", b"PK\5\6")
"""The first bytes of a zip file: a member, or the end of one without members."""


def write_archive(folder: Path, manifest: Manifest, file: Path) -> None:
    """Write the bundle in `folder` as `file`, in one step."""
    write_zip(folder, (MANIFEST_NAME, *(entry.path for entry in manifest.files)), file)


def write_zip(folder: Path, names: Sequence[str], file: Path) -> None:
    """Write these files of a folder as one .zip in one step, with the same bytes each time.

    Stored, not deflated: weights hardly shrink, and zlib's output depends on its version.
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
    with storage_errors("read", file), file.open("rb") as stream:
        return stream.read(4) in _BEGINNINGS


def unpack_archive(file: Path, check: Callable[[Path], T]) -> T:
    """Unpack into the cache, once for the same bytes. Return the result of `check` for the folder.

    `check` raises BundleError for a folder that is not a whole bundle. The folder is removed then.
    """
    with storage_errors("read the archive", file), file.open("rb") as stream:
        digest = sha256_stream(stream)
        key = sha256_bytes(f"unpacked {digest}".encode())
        cache = BuildCache()
        with cache.locked(key):
            found = cache.find(key)
            if found is not None:
                try:
                    return check(found)
                except BundleError:
                    cache.forget(key)
            with cache.storing(key, "unpacked", file.name) as folder:
                _unpack(stream, file, folder)
                check(folder)
                stream.seek(0)
                if sha256_stream(stream) != digest:
                    _refuse(file, "changed while it was read")
            return check(cache.content(key))


def _unpack(stream: BinaryIO, file: Path, folder: Path) -> None:
    try:
        members = read_zip(stream)
        manifest = parse_manifest(_read_manifest(members, file))
        _check_members(members, manifest, file)
        for name, member in members.items():
            target = safe_join(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as unpacked:
                for block in member.blocks():
                    unpacked.write(block)
    except ZipError as error:
        raise BundleError(
            f"{file} is damaged, or no .zip that every program reads alike: {error}",
            hint="get the archive again from the person who built it",
        ) from error


def _read_manifest(members: Mapping[str, ZipMember], file: Path) -> bytes:
    member = members.get(MANIFEST_NAME)
    if member is None:
        _refuse(file, f"is not a bundle: it has no {MANIFEST_NAME}")
    if member.size > MANIFEST_LIMIT:
        _refuse(file, "has a manifest larger than any manifest is")
    return member.read()


def _check_members(members: Mapping[str, ZipMember], manifest: Manifest, file: Path) -> None:
    sizes = {entry.path: entry.size for entry in manifest.files}
    for name, member in members.items():
        if name != MANIFEST_NAME and name not in sizes:
            _refuse(file, f"holds {ascii(name)[:120]}, which its manifest does not name")
        if name in sizes and member.size != sizes[name]:
            _refuse(file, f"holds {ascii(name)[:120]} in another size than its manifest says")
    for name in sizes:
        if name not in members:
            _refuse(file, f"lacks {ascii(name)[:120]}, which its manifest names")


def _refuse(file: Path, what: str) -> NoReturn:
    raise BundleError(
        f"the archive {file} {what}", hint="get the bundle again from the person who built it"
    )
