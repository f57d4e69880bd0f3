"""Takes a bundle out of a registry: nothing is written before all of it is verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgekit.base.errors import (
    BadInputError,
    RegistryError,
    SignatureError,
    StorageError,
    UsageError,
)
from edgekit.base.events import SILENT, Events, Stage
from edgekit.base.files import (
    free_space,
    replace_directory,
    safe_join,
    sha256_file,
    storage_errors,
)
from edgekit.base.wording import size
from edgekit.bundle.folder import open_bundle
from edgekit.bundle.manifest import MANIFEST_LIMIT, MANIFEST_NAME, Manifest, parse_manifest
from edgekit.registry.address import Address
from edgekit.registry.connection import Connection
from edgekit.registry.keys import PublicKey
from edgekit.registry.parts import Part, copy_part, parts_of, parts_of_file
from edgekit.registry.repository import Repository
from edgekit.registry.seen import Memory
from edgekit.registry.statement import AGAIN, Signed, read_document


@dataclass(frozen=True)
class Fetched:
    """A bundle that was fetched and verified."""

    path: Path
    address: str
    model: str
    board: str
    digest: str
    """The SHA-256 of the bundle's manifest, which is signed."""
    counter: int
    key: str
    key_id: str
    received: int
    """Bytes of blobs that came from the registry."""
    total: int
    """Bytes of the bundle."""


def fetch(
    address: Address,
    out: Path,
    key: PublicKey,
    *,
    board: str | None = None,
    plain_http: bool = False,
    events: Events = SILENT,
) -> Fetched:
    """Fetch the bundle of a tag into the folder `out`, which it replaces in one step.

    Files that the folder holds already are not fetched. SignatureError unless the key's owner
    signed it, for `board`, and unless nothing newer was seen before.
    """
    _check_destination(out)
    memory = Memory(address, key)
    with memory.held(), events.stage(f"fetch {address}") as stage:
        repository = Repository(Connection(address, plain_http=plain_http))
        data = repository.document(address.tag)
        if data is None:
            raise RegistryError(
                f"{address.host} has no {address.name}:{address.tag}",
                hint="check the name and the tag, and that the bundle was published",
            )
        signed = read_document(data, address, key)
        statement = signed.statement
        memory.check(statement.counter, statement.manifest)
        if board is not None and statement.board != board:
            raise SignatureError(
                f"{address} is for the board {statement.board!a}, not for {board}",
                hint="fetch the tag that was published for your board",
            )
        with storage_errors("write the bundle", out), replace_directory(out) as folder:
            manifest = _receive_manifest(repository, address, signed, folder)
            if manifest.board.name != statement.board:
                raise SignatureError(
                    f"{address} is signed for the board {statement.board!a} and was built for "
                    f"{manifest.board.name!a}",
                    hint=AGAIN,
                )
            received = _receive_files(repository, manifest, signed.parts, folder, out, stage)
            open_bundle(folder)
        memory.remember(statement.counter, statement.manifest)
        stage.result = f"received {size(received)}"
    return Fetched(
        path=out,
        address=str(address),
        model=manifest.model.name,
        board=statement.board,
        digest=statement.manifest,
        counter=statement.counter,
        key=key.name,
        key_id=key.id,
        received=received + signed.manifest_size,
        total=signed.manifest_size + sum(file.size for file in manifest.files),
    )


def _check_destination(out: Path) -> None:
    with storage_errors("write the bundle", out):
        is_free = not out.exists() or (out.is_dir() and not any(out.iterdir()))
        if not is_free and not (out / MANIFEST_NAME).is_file():
            raise UsageError(
                f"{out} is no bundle, and would be written over",
                hint="name a new folder, or that of a bundle",
            )


def _receive_manifest(
    repository: Repository, address: Address, signed: Signed, folder: Path
) -> Manifest:
    if signed.manifest_size > MANIFEST_LIMIT:
        raise SignatureError(f"{address} has a manifest larger than any manifest is", hint=AGAIN)
    file = folder / MANIFEST_NAME
    with file.open("xb+") as stream:
        repository.get_blob(
            signed.statement.manifest, signed.manifest_size, stream, lambda count: None
        )
    return parse_manifest(file.read_bytes())


def _receive_files(
    repository: Repository,
    manifest: Manifest,
    parts: Sequence[Part],
    folder: Path,
    before: Path,
    stage: Stage,
) -> int:
    """Receive what the folder from before lacks. Return how many bytes came."""
    total = sum(file.size for file in manifest.files)
    if total > free_space(folder):
        raise StorageError(
            f"the bundle has {size(total)}, and the disk of {before} has no room for them",
            hint="free some space (edgekit cache prune) or write elsewhere",
        )
    stage.expect(total)
    held = _held(before)
    received = 0
    for file in manifest.files:
        target = safe_join(folder, file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        advance = partial(stage.advance, detail=file.path)
        with target.open("xb") as stream:
            for part in parts_of_file(file, parts):
                if part.sha256 in held:
                    source, offset = held[part.sha256]
                    copy_part(source, offset, part.size, stream)
                    advance(part.size)
                else:
                    repository.get_blob(part.sha256, part.size, stream, advance)
                    received += part.size
        if sha256_file(target) != file.sha256:
            raise SignatureError(f"{file.path} is not the file that was signed", hint=AGAIN)
    return received


def _held(folder: Path) -> dict[str, tuple[Path, int]]:
    """Return the parts in a bundle's folder by hash; none if it is damaged, or no bundle."""
    try:
        bundle = open_bundle(folder)
        return {part.sha256: (bundle.path / part.path, part.offset) for part in parts_of(bundle)}
    except (BadInputError, StorageError):
        return {}
