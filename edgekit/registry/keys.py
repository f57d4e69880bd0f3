"""Ed25519 keys that sign what is published: made, listed, found, used.

A private key is `NAME.key`, its public half `NAME.pub`, both PEM, which OpenSSL reads too.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from edgekit.base.errors import BadInputError, UsageError
from edgekit.base.files import sha256_bytes, storage_errors, write_atomically
from edgekit.base.options import option
from edgekit.base.paths import config_dir
from edgekit.base.wording import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PRIVATE, _PUBLIC = ".key", ".pub"
_DIGITS = 16
_LARGEST = 10_000


@dataclass(frozen=True)
class PublicKey:
    """The half of a key that verifies."""

    name: str
    id: str
    """The first digits of the SHA-256 of the key's 32 bytes."""
    file: Path
    raw: bytes = field(repr=False)

    def verifies(self, signature: bytes, data: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """A key that signs."""

    public: PublicKey
    _private: Ed25519PrivateKey = field(repr=False)

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


@dataclass(frozen=True)
class KeyEntry:
    """A key in the user's folder."""

    name: str
    id: str
    signs: bool
    """Whether the private half is there too."""
    file: Path
    """The file of the public half, which others need to verify."""


def new_key(name: str) -> KeyEntry:
    """Make a key. UsageError if there is one of this name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} is not the name of a key",
            hint="use letters, digits, dots, underscores and hyphens, at most 64",
        )
    folder = _folder()
    private, public = folder / (name + _PRIVATE), folder / (name + _PUBLIC)
    made = Ed25519PrivateKey.generate()
    secret = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with storage_errors("write the key", private):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if public.exists():
            raise _taken(name, public)
        try:
            descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise _taken(name, private) from error
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(secret)
                stream.flush()
                os.fsync(descriptor)
            write_atomically(public, _public_pem(made.public_key()))
        except BaseException:
            private.unlink()
            raise
    return _entry(public)


def list_keys() -> tuple[KeyEntry, ...]:
    """List the keys of the user, by name."""
    with storage_errors("list the keys", _folder()):
        return tuple(_entry(file) for file in sorted(_folder().glob("*" + _PUBLIC)))


def signing_key(name: str | None) -> SigningKey:
    """Find the key to sign with: the named one, or the only one."""
    known = [entry.name for entry in list_keys() if entry.signs]
    chosen = _chosen(name, known, "signs with", "make one: edgekit keys new NAME")
    file = _folder() / (chosen + _PRIVATE)
    with storage_errors("read the key", file):
        if file.stat().st_mode & 0o077:
            raise BadInputError(
                f"other users may read the private key {file}",
                hint=f"make it yours alone: chmod 600 {file}; if they may have read it, make a "
                "new one with `edgekit keys new`",
            )
        data = file.read_bytes()[:_LARGEST]
    try:
        private = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _no_key(file, "a private key in PEM without a passphrase") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise _no_key(file, "an Ed25519 key")
    return SigningKey(_public(private.public_key(), chosen, file), private)


def public_key(named: str | None, start: Path) -> PublicKey:
    """Find the key to verify with: a file, a name in the user's folder, or the only key.

    A file's path has a slash or ends in `.pub`, and starts at `start` if it is relative.
    """
    if named is not None and ("/" in named or named.endswith(_PUBLIC)):
        return _read_public(start / named)
    making = f"get the publisher's NAME.pub, and name it: {option('key', 'NAME.pub')}"
    chosen = _chosen(named, [entry.name for entry in list_keys()], "verifies with", making)
    return _read_public(_folder() / (chosen + _PUBLIC))


def _chosen(name: str | None, known: list[str], doing: str, getting: str) -> str:
    if name is None and len(known) == 1:
        return known[0]
    listed = f"keys are {', '.join(known)}" if known else getting
    if name is None:
        raise UsageError(
            f"there {'are several keys' if known else 'is no key'} that edgekit {doing}",
            hint=f"add {option('key', 'NAME')}; {listed}" if known else listed,
        )
    if name not in known:
        raise UsageError(
            f"there is no key {name[:200]!r} that edgekit {doing}",
            hint=did_you_mean(name[:200], known, listed),
        )
    return name


def _read_public(file: Path) -> PublicKey:
    with storage_errors("read the key", file), file.open("rb") as stream:
        data = stream.read(_LARGEST)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_key(file, "a public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(file, "an Ed25519 key")
    return _public(key, file.stem, file)


def _public(key: Ed25519PublicKey, name: str, file: Path) -> PublicKey:
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return PublicKey(name, sha256_bytes(raw)[:_DIGITS], file, raw)


def _entry(public: Path) -> KeyEntry:
    key = _read_public(public)
    return KeyEntry(key.name, key.id, public.with_suffix(_PRIVATE).is_file(), public)


def _public_pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _folder() -> Path:
    return config_dir() / "keys"


def _taken(name: str, file: Path) -> UsageError:
    return UsageError(
        f"there is a key {name} already, at {file}",
        hint="choose another name: bundles that it signed need it",
    )


def _no_key(file: Path, expected: str) -> BadInputError:
    return BadInputError(
        f"{file} is not {expected}", hint="`edgekit keys new NAME` makes a pair of keys"
    )
