"""Puts a bundle into a registry, signed. What the registry has is not sent again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from edgekit.base.errors import SignatureError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_file, storage_errors
from edgekit.base.wording import size
from edgekit.bundle.folder import Bundle
from edgekit.bundle.manifest import MANIFEST_NAME
from edgekit.registry.address import Address
from edgekit.registry.connection import Connection
from edgekit.registry.keys import SigningKey
from edgekit.registry.parts import Part, parts_of
from edgekit.registry.repository import Repository
from edgekit.registry.seen import Memory
from edgekit.registry.statement import Statement, read_document, write_document


@dataclass(frozen=True)
class Published:
    """A publication, and what was sent for it."""

    address: str
    board: str
    digest: str
    """The SHA-256 of the bundle's manifest, which is signed."""
    counter: int
    key: str
    key_id: str
    sent: int
    """Bytes of blobs that the registry lacked."""
    total: int
    """Bytes of the bundle."""
    is_new: bool
    """False if the tag held just this publication already."""


def publish(
    bundle: Bundle,
    address: Address,
    key: SigningKey,
    *,
    plain_http: bool = False,
    events: Events = SILENT,
) -> Published:
    """Publish a bundle under a tag. Nothing is sent if the tag holds it already."""
    manifest_file = bundle.path / MANIFEST_NAME
    with storage_errors("read the bundle", manifest_file):
        sha256, manifest_size = sha256_file(manifest_file), manifest_file.stat().st_size
        parts = parts_of(bundle)
    blobs = {part.sha256: part for part in parts}
    blobs[sha256] = Part(MANIFEST_NAME, 0, manifest_size, sha256)
    memory = Memory(address, key.public)
    with memory.held(), events.stage(f"publish {address}") as stage:
        repository = Repository(Connection(address, plain_http=plain_http))
        before = _present(repository, address, key)
        seen = memory.latest()
        is_new = before is None or before.manifest != sha256
        if seen is not None and before is not None and before.counter < seen.counter:
            is_new = True  # the registry forgot a publication, or somebody moved the tag
        sent = 0
        if before is not None and not is_new:
            statement = before
        else:
            counters = [one.counter for one in (before, seen) if one is not None]
            statement = Statement(
                kind="bundle",
                name=address.name,
                tag=address.tag,
                manifest=sha256,
                board=bundle.manifest.board.name,
                counter=max(counters, default=0) + 1,
            )
            lacking = [part for part in blobs.values() if not repository.has_blob(part.sha256)]
            sent = sum(part.size for part in lacking)
            stage.expect(sent)
            for part in lacking:
                file = bundle.path / part.path
                with storage_errors("read the bundle", file), file.open("rb") as stream:
                    stream.seek(part.offset)
                    advance = partial(stage.advance, detail=part.path)
                    repository.put_blob(part.sha256, stream, part.size, advance)
            document = write_document(statement, parts, manifest_size, key)
            repository.put_document(address.tag, document)
        memory.remember(statement.counter, statement.manifest)
        stage.result = f"sent {size(sent)}" if is_new else "there already"
    return Published(
        address=str(address),
        board=statement.board,
        digest=sha256,
        counter=statement.counter,
        key=key.public.name,
        key_id=key.public.id,
        sent=sent,
        total=sum(part.size for part in blobs.values()),
        is_new=is_new,
    )


def _present(repository: Repository, address: Address, key: SigningKey) -> Statement | None:
    """Return what the tag holds, if this key signed it."""
    data = repository.document(address.tag)
    if data is None:
        return None
    try:
        return read_document(data, address, key.public).statement
    except SignatureError:
        return None
