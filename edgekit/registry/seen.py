"""Remembers the latest publication of each tag that this user published or fetched.

A registry that hands out an older one, though the key's owner signed it once, is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edgekit.base.decode import Count, Sha256, decode_json, encode
from edgekit.base.errors import BadInputError, SignatureError
from edgekit.base.files import exclusive_lock, sha256_bytes, storage_errors, write_atomically
from edgekit.base.json_text import json_text
from edgekit.base.paths import data_dir
from edgekit.registry.address import Address
from edgekit.registry.keys import PublicKey

_LARGEST = 10_000


@dataclass(frozen=True)
class Publication:
    """A publication of a tag."""

    address: str
    key: str
    counter: Count
    content: Sha256
    """The SHA-256 of what was published: a bundle's manifest, a rollout's statement."""


class Memory:
    """The latest publication of one tag by one key."""

    def __init__(self, address: Address, key: PublicKey) -> None:
        self._address, self._key = address, key
        name = sha256_bytes(f"{address}\n{key.raw.hex()}".encode())
        self._file = data_dir() / "registry" / f"{name}.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes of this user from publishing or fetching the tag."""
        with storage_errors("remember the publication", self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with exclusive_lock(self._file.with_suffix(".lock")):
            yield

    def latest(self) -> Publication | None:
        with storage_errors("read the latest publication", self._file):
            data = self._file.read_bytes()[:_LARGEST] if self._file.exists() else None
        if data is None:
            return None
        try:
            return decode_json(Publication, data)
        except ValueError as error:
            raise BadInputError(
                f"{self._file} is damaged: it holds the latest publication of {self._address}",
                hint="make sure that the registry's is the newest, and remove the file",
            ) from error

    def check(self, counter: int, content: str) -> None:
        """Refuse a publication that is older than the latest one seen, or its rival."""
        seen = self.latest()
        if seen is None:
            return
        if counter < seen.counter:
            raise SignatureError(
                f"{self._address} holds publication {counter}, and {seen.counter} was seen before",
                hint="the registry hands out an older bundle; its owner can publish it again to "
                "go back",
            )
        if counter == seen.counter and content != seen.content:
            raise SignatureError(
                f"{self._address} holds another publication {counter} than was seen before",
                hint="two people published at the same time; one of them has to publish again",
            )

    def remember(self, counter: int, content: str) -> None:
        latest = Publication(str(self._address), self._key.id, counter, content)
        with storage_errors("remember the publication", self._file):
            write_atomically(self._file, json_text(encode(latest)) + "\n")
