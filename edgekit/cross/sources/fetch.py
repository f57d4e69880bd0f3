"""Fetches archives: from a folder or mirror that the user names, the package index, or Debian.

The pinned hash decides, whatever the origin.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from edgekit.base.cache import BuildCache
from edgekit.base.errors import BuildError, MissingToolError
from edgekit.base.events import Events, Stage
from edgekit.base.files import sha256_file, storage_errors
from edgekit.base.wording import size
from edgekit.cross.sources.index import find_file, local_folder, pip_config
from edgekit.cross.sources.recipe import Archive
from edgekit.cross.sources.web import Web, WebError, blocks, length_of
from edgekit.twin.debian import download_package
from edgekit.twin.tools import BuildTools, find_tool

SOURCES_VARIABLE = "EDGEKIT_SOURCES"
"""The variable with folders and addresses of archives, which come before all other origins."""
_LARGEST = 1 << 30


def fetch(archive: Archive, cache: BuildCache, log: IO[bytes], events: Events) -> Path:
    """Return an archive from the cache, fetched first if it is missing or damaged."""
    key = archive.sha256
    with cache.locked(key):
        found = cache.find(key)
        if found is not None and _is_whole(found / archive.file, archive):
            return found / archive.file
        with (
            cache.storing(key, "source", archive.file) as folder,
            events.stage(f"fetch {archive.file}") as stage,
        ):
            path = folder / archive.file
            origin = _obtain(archive, path, log, cache, stage)
            stage.result = f"{size(path.stat().st_size)} from {origin}"
            if not _is_whole(path, archive):
                raise _other_bytes(archive, path, origin)
        return cache.content(key) / archive.file


def _is_whole(path: Path, archive: Archive) -> bool:
    return path.is_file() and sha256_file(path) == archive.sha256


def _obtain(archive: Archive, path: Path, log: IO[bytes], cache: BuildCache, stage: Stage) -> str:
    """Write the file and return its origin in words."""
    for address in _named_places(archive):
        with suppress(WebError):  # a mirror may lack a file
            local = address.startswith("file:")
            _download(address, path, Web() if local else pip_config().web, stage)
            return "a named folder" if local else urlsplit(address).hostname or address
    if archive.origin == "debian":
        _from_debian(archive, path, log, cache, stage)
        return "Debian"
    troubles = []
    config = pip_config()
    for address in find_file(config, archive.project, archive.file):
        try:
            _download(address, path, config.web, stage)
        except WebError as error:
            troubles.append(str(error))
        else:
            return urlsplit(address).hostname or "pip's find-links"
    raise BuildError(
        f"{archive.file} could not be fetched: {troubles[0]}",
        hint="check the network and `pip config list`, or name a folder with the file in"
        f" {SOURCES_VARIABLE}",
        details=tuple(troubles),
    )


def _from_debian(
    archive: Archive, path: Path, log: IO[bytes], cache: BuildCache, stage: Stage
) -> None:
    assert archive.release is not None
    if any(find_tool(tool) is None for tool in ("apt-get", "dpkg-deb", "setpriv")):
        raise MissingToolError(
            f"{archive.file} is a Debian package, and this host has no apt to fetch it",
            hint=f"name a folder with the file in {SOURCES_VARIABLE}, or build the library yourself"
            " (see docs/libraries.md)",
        )
    with cache.scratch() as work:
        tools = BuildTools(log, advice=f"apt's output is in {log.name}")
        package = download_package(archive.release, archive.file, work, tools, stage)
        # apt writes the colon of an epoch as %3a.
        if unquote(package.name) != archive.file:
            raise BuildError(
                f"the release {archive.release} has {package.name}, and {archive.file} is pinned",
                hint=f"name a folder with the pinned one in {SOURCES_VARIABLE}, or update edgekit",
            )
        with storage_errors("save the package", path):
            shutil.move(package, path)


def _named_places(archive: Archive) -> Iterator[str]:
    for place in os.environ.get(SOURCES_VARIABLE, "").split():
        folder = local_folder(place)
        if folder is None:
            yield f"{place.rstrip('/')}/{archive.file}"
        elif (folder / archive.file).is_file():
            yield (folder / archive.file).absolute().as_uri()


def _download(address: str, path: Path, web: Web, stage: Stage) -> None:
    with (
        storage_errors("save the source", path),
        web.opened(address) as answer,
        path.open("wb") as target,
    ):
        stage.expect(length_of(answer))
        for block in blocks(answer, _LARGEST):
            target.write(block)
            stage.advance(len(block))


def _other_bytes(archive: Archive, path: Path, origin: str) -> BuildError:
    return BuildError(
        f"{archive.file} from {origin} is not the pinned file",
        hint="do not use it: the package index or mirror serves another file",
        details=(f"pinned: SHA-256 {archive.sha256}", f"found:  SHA-256 {sha256_file(path)}"),
    )
