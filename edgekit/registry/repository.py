"""One repository of a registry: its blobs, and the document of its tag, by the OCI protocol."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import BinaryIO

from edgekit.base.errors import RegistryError, SignatureError
from edgekit.base.wording import size
from edgekit.cross.sources.web import WebError, blocks, length_of
from edgekit.registry.connection import BrokenOffError, Connection, MissingError
from edgekit.registry.statement import AGAIN, DOCUMENT_TYPE

DOCUMENT_LIMIT = 4 << 20
"""The most bytes of a tag's document, as registries have it."""
_CHUNK = 8 << 20
_SENT = re.compile(r"(?:bytes=)?0-(\d{1,18})")
_PARTIAL = 206

Advance = Callable[[int], None]
"""A function that is told how many more bytes were sent or received."""


class Repository:
    """A repository, through a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._place = f"{connection.address.host}/{connection.address.name}"

    def document(self, tag: str) -> bytes | None:
        """Return the document that a tag names; None if there is none."""
        doing = f"read {self._connection.address}"
        url = self._connection.url(f"manifests/{tag}")
        for attempt in self._connection.attempts(doing):
            with attempt:
                try:
                    with self._connection.opened(
                        "GET", url, doing=doing, headers={"Accept": DOCUMENT_TYPE}
                    ) as answer:
                        return self._connection.read(answer, DOCUMENT_LIMIT, "the document")
                except MissingError:
                    return None
        raise AssertionError("the last attempt returns or raises")

    def put_document(self, tag: str, data: bytes) -> None:
        """Make a tag name a document. All its blobs must be in the repository."""
        doing = f"write {self._connection.address}"
        url = self._connection.url(f"manifests/{tag}")
        for attempt in self._connection.attempts(doing):
            with (
                attempt,
                self._connection.opened(
                    "PUT", url, doing=doing, headers={"Content-Type": DOCUMENT_TYPE}, data=data
                ),
            ):
                pass

    def has_blob(self, sha256: str) -> bool:
        doing = f"look for a blob in {self._place}"
        url = self._connection.url(f"blobs/sha256:{sha256}")
        for attempt in self._connection.attempts(doing):
            with attempt:
                try:
                    with self._connection.opened("HEAD", url, doing=doing):
                        return True
                except MissingError:
                    return False
        raise AssertionError("the last attempt returns or raises")

    def put_blob(self, sha256: str, stream: BinaryIO, total: int, advance: Advance) -> None:
        """Send the next bytes of a stream as a blob, in chunks. After a break it goes on where the
        registry says."""
        begin = stream.tell()
        doing = f"send a blob to {self._place}"
        upload, sent = self._begin(doing), 0
        for attempt in self._connection.attempts(doing):
            with attempt:
                if attempt.is_repeated:
                    before = sent
                    upload, sent = self._resumed(upload, doing)
                    advance(sent - before)
                while sent < total:
                    stream.seek(begin + sent)
                    part = stream.read(min(_CHUNK, total - sent))
                    if not part:
                        raise RegistryError(
                            "a file of the bundle became shorter while it was sent",
                            hint="publish again when no other program writes to the bundle",
                        )
                    headers = {
                        "Content-Type": "application/octet-stream",
                        "Content-Range": f"{sent}-{sent + len(part) - 1}",
                    }
                    with self._connection.opened(
                        "PATCH", upload, doing=doing, headers=headers, data=part
                    ) as answer:
                        location = answer.headers.get("Location")
                    upload = self._connection.follow(upload, location, doing)
                    sent += len(part)
                    advance(len(part))
                mark = "&" if "?" in upload else "?"
                with self._connection.opened(
                    "PUT", f"{upload}{mark}digest=sha256:{sha256}", doing=doing, data=b""
                ):
                    pass

    def get_blob(self, sha256: str, total: int, target: BinaryIO, advance: Advance) -> None:
        """Append a blob of just this size and content to a file. After a break it goes on."""
        begin = target.tell()
        doing = f"fetch a blob of {self._place}"
        url = self._connection.url(f"blobs/sha256:{sha256}")
        digest = hashlib.sha256()
        for attempt in self._connection.attempts(doing):
            with attempt:
                received = target.tell() - begin
                headers = {"Range": f"bytes={received}-"} if received else {}
                with self._connection.opened("GET", url, doing=doing, headers=headers) as answer:
                    if received and answer.status != _PARTIAL:
                        advance(-received)
                        received = target.seek(begin) - begin
                        target.truncate()
                        digest = hashlib.sha256()
                    promised = length_of(answer)
                    if promised is not None and promised != total - received:
                        raise self._swapped(sha256)
                    try:
                        for block in blocks(answer, total - received):
                            target.write(block)
                            digest.update(block)
                            advance(len(block))
                    except WebError as error:
                        if error.__cause__ is None:  # more than was promised
                            raise self._swapped(sha256) from error
                        raise BrokenOffError(str(error)) from error
                received = target.tell() - begin
                if received < total:
                    raise BrokenOffError(f"it sent {size(received)} of {size(total)}")
        if digest.hexdigest() != sha256:
            raise self._swapped(sha256)

    def _begin(self, doing: str) -> str:
        url = self._connection.url("blobs/uploads/")
        for attempt in self._connection.attempts(doing):
            with (
                attempt,
                self._connection.opened("POST", url, doing=doing, data=b"") as answer,
            ):
                return self._connection.follow(url, answer.headers.get("Location"), doing)
        raise AssertionError("the last attempt returns or raises")

    def _resumed(self, upload: str, doing: str) -> tuple[str, int]:
        """Return where an upload goes on, and after how many bytes; or a new one."""
        try:
            with self._connection.opened("GET", upload, doing=doing) as answer:
                found = _SENT.fullmatch(str(answer.headers.get("Range", "")))
                last = int(found[1]) if found else 0
                # 0-0 means one byte or none: registries differ.
                if last:
                    location = answer.headers.get("Location") or upload
                    return self._connection.follow(upload, location, doing), last + 1
        except MissingError:
            pass
        return self._begin(doing), 0

    def _swapped(self, sha256: str) -> SignatureError:
        return SignatureError(
            f"{self._place} holds other content for the blob {sha256[:12]}… than was signed",
            hint=AGAIN,
        )
