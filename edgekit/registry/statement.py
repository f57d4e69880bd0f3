"""The signed statement about a bundle, and the artifact's document that carries it."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

from edgekit.base.decode import Check, Count, Most, Sha256, decode_json, encode
from edgekit.base.errors import SignatureError
from edgekit.base.json_text import json_line, json_text
from edgekit.bundle.manifest import MANIFEST_NAME
from edgekit.registry.address import Address
from edgekit.registry.keys import PublicKey, SigningKey
from edgekit.registry.parts import Part

T = TypeVar("T")

DOCUMENT_TYPE = "application/vnd.oci.image.manifest.v1+json"
_BUNDLE_TYPE = "application/vnd.edgekit.bundle.v1+json"
_FILE_TYPE = "application/vnd.edgekit.file.v1"
_TITLE = "org.opencontainers.image.title"
_PATH, _OFFSET = "dev.edgekit.path", "dev.edgekit.offset"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,15}")
_STATEMENT, _SIGNATURE = "dev.edgekit.statement", "dev.edgekit.signature"
_SIGNED = b"a statement about a bundle, signed by edgekit\n"
"""The beginning of the signed bytes, so that no other document of the key passes for one."""

AGAIN = "ask the person who published it; nothing was written"


@dataclass(frozen=True)
class Statement:
    """What the key's owner says about a tag."""

    kind: Literal["bundle"]
    name: Annotated[str, Most(300)]
    """The repository's name, so that another repository's bundle does not pass for it."""
    tag: Annotated[str, Most(128)]
    manifest: Sha256
    """The SHA-256 of the bundle's manifest, and through it of every file."""
    board: Annotated[str, Most(200)]
    counter: Count
    """The number of the publication. It only grows."""


@dataclass(frozen=True)
class Signed:
    """A statement whose signature was verified."""

    statement: Statement
    manifest_size: int
    """The bytes of the bundle's manifest, as the registry says."""
    parts: tuple[Part, ...]
    """The parts of files, as the registry says: their hashes are not signed, those of files are."""


@dataclass(frozen=True)
class _Descriptor:
    """A blob of an artifact."""

    digest: Annotated[str, Check("sha256:…", _DIGEST.fullmatch)]
    size: Count
    annotations: Mapping[str, Annotated[str, Most(1000)]] = field(default_factory=dict)

    @property
    def part(self) -> Part | None:
        """The part of a file that a layer says to be."""
        path, offset = (self.annotations.get(key, "") for key in (_PATH, _OFFSET))
        if not path or not _NUMBER.fullmatch(offset):
            return None
        return Part(path, int(offset), self.size, self.digest.removeprefix("sha256:"))


@dataclass(frozen=True)
class _Document:
    """The part of an OCI manifest that edgekit reads."""

    config: _Descriptor
    layers: tuple[_Descriptor, ...] = ()
    annotations: Mapping[str, Annotated[str, Most(10_000)]] = field(default_factory=dict)


def write_document(
    statement: Statement, parts: Sequence[Part], manifest_size: int, key: SigningKey
) -> bytes:
    """Write an OCI manifest: its config is the bundle's manifest, its layers are the parts."""
    layers = [
        {
            "mediaType": _FILE_TYPE,
            "digest": f"sha256:{part.sha256}",
            "size": part.size,
            "annotations": {
                _TITLE: part.path if part.offset == 0 else f"{part.path}.{part.offset}",
                _PATH: part.path,
                _OFFSET: str(part.offset),
            },
        }
        for part in parts
    ]
    config = {
        "mediaType": _BUNDLE_TYPE,
        "digest": f"sha256:{statement.manifest}",
        "size": manifest_size,
        "annotations": {_TITLE: MANIFEST_NAME},
    }
    return signed_document(_BUNDLE_TYPE, config, layers, json_line(encode(statement)), key)


def signed_document(
    kind: str,
    config: Mapping[str, object],
    layers: Sequence[Mapping[str, object]],
    text: str,
    key: SigningKey,
) -> bytes:
    """Write an OCI manifest that carries a signed statement."""
    signature = base64.b64encode(key.sign(_SIGNED + text.encode())).decode("ascii")
    document = {
        "schemaVersion": 2,
        "mediaType": DOCUMENT_TYPE,
        "artifactType": kind,
        "config": config,
        "layers": layers,
        "annotations": {_STATEMENT: text, _SIGNATURE: signature},
    }
    return (json_text(document) + "\n").encode()


def read_document(data: bytes, address: Address, key: PublicKey) -> Signed:
    """Verify an artifact's document.

    SignatureError unless this key signed a statement about just this name and tag.
    """
    document, text = _verified(data, address, key)
    try:
        statement = decode_json(Statement, text)
    except ValueError as error:
        raise _unreadable(address, error) from error
    if (statement.name, statement.tag) != (address.name, address.tag):
        raise _refused(address, f"holds what was signed as {statement.name!a}:{statement.tag!a}")
    if document.config.digest != f"sha256:{statement.manifest}":
        raise _refused(address, "names another manifest than the signed one")
    parts = tuple(layer.part for layer in document.layers)
    return Signed(statement, document.config.size, tuple(part for part in parts if part))


def read_statement(kind: type[T], data: bytes, address: Address, key: PublicKey) -> tuple[T, str]:
    """Verify a document without files. Return its statement, and the statement's text."""
    _, text = _verified(data, address, key)
    try:
        return decode_json(kind, text), text
    except ValueError as error:
        raise _unreadable(address, error) from error


def _verified(data: bytes, address: Address, key: PublicKey) -> tuple[_Document, str]:
    """Return a document and the text of its statement, which this key signed."""
    try:
        document = decode_json(_Document, data, ignore_unknown=True)
    except ValueError as error:
        raise SignatureError(
            f"{address} is no artifact that edgekit reads: {error}", hint=AGAIN
        ) from error
    text = document.annotations.get(_STATEMENT)
    encoded = document.annotations.get(_SIGNATURE)
    if text is None or encoded is None:
        raise SignatureError(
            f"{address} is not signed", hint="publish it with `edgekit publish`, which signs"
        )
    try:
        signature = base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise _refused(address, "has a signature that is not base64") from error
    if not key.verifies(signature, _SIGNED + text.encode()):
        raise SignatureError(
            f"{address} is not signed by the key {key.name} ({key.id})",
            hint="name the key of the person who published it, or take nothing of it",
        )
    return document, text


def _unreadable(address: Address, error: ValueError) -> SignatureError:
    return _refused(address, f"has a signed statement that edgekit can't read: {error}")


def _refused(address: Address, what: str) -> SignatureError:
    return SignatureError(f"{address} {what}", hint=AGAIN)
