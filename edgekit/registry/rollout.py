"""Rollouts: a signed document in a registry says which share of a channel takes which bundle.

A board's share follows from a hash of its name, so that no list of boards is needed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Annotated, Literal

from edgekit.base.decode import Count, Most, Range, Sha256, encode
from edgekit.base.errors import RegistryError, SignatureError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_bytes
from edgekit.base.json_text import json_line
from edgekit.registry.address import Address
from edgekit.registry.connection import Connection
from edgekit.registry.keys import PublicKey, SigningKey
from edgekit.registry.repository import Repository
from edgekit.registry.seen import Memory
from edgekit.registry.statement import AGAIN, read_document, read_statement, signed_document

ALL = 10_000
"""A whole channel, in hundredths of a percent."""
_MOST_WAVES = 100
_SHARE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?%")
_TYPE = "application/vnd.edgekit.rollout.v1+json"
_EMPTY = b"{}"
_EMPTY_CONFIG = {
    "mediaType": "application/vnd.oci.empty.v1+json",
    "digest": f"sha256:{sha256_bytes(_EMPTY)}",
    "size": len(_EMPTY),
}

Move = Literal["next", "pause", "resume", "back"]


@dataclass(frozen=True)
class Version:
    """A publication of a bundle in the rollout's repository."""

    tag: Annotated[str, Most(128)]
    manifest: Sha256
    board: Annotated[str, Most(200)]


@dataclass(frozen=True)
class Rollout:
    """What the key's owner says about a channel."""

    kind: Literal["rollout"]
    name: Annotated[str, Most(300)]
    """The repository's name."""
    channel: Annotated[str, Most(64)]
    state: Literal["running", "paused", "back"]
    version: Version
    before: Version | None
    """What the rest of the channel keeps; None before the first rollout has ended."""
    waves: Annotated[tuple[Annotated[int, Range(1, ALL)], ...], Most(_MOST_WAVES, "waves")]
    """The share of each wave, in hundredths of a percent."""
    wave: Count
    counter: Count

    def __post_init__(self) -> None:
        if list(self.waves) != sorted(set(self.waves)) or not self.wave < len(self.waves):
            raise ValueError("its waves must grow, and one of them must be the present one")

    @property
    def share(self) -> int:
        """The share of the channel that may have the version, in hundredths of a percent."""
        return 0 if self.state == "back" else self.waves[self.wave]

    @property
    def has_ended(self) -> bool:
        return self.share in (0, ALL)

    def version_for(self, board: str) -> Version | None:
        """Return what a board of this name takes; None if there is nothing for it yet."""
        words = f"{self.name}\n{self.channel}\n{self.version.manifest}\n{board}"
        place = int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big") % ALL
        return self.version if place < self.share else self.before


def parse_waves(text: str) -> tuple[int, ...]:
    """Read shares such as 1%,10%,100%, which grow."""
    found = [_SHARE.fullmatch(word.strip()) for word in text.split(",")]
    shares = [int(one[1]) * 100 + int((one[2] or "").ljust(2, "0")) for one in found if one]
    fit = len(shares) == len(found) <= _MOST_WAVES and shares == sorted(set(shares))
    if not fit or shares[0] < 1 or shares[-1] > ALL:
        raise UsageError(
            f"{text[:80]!r} are no waves", hint="write shares that grow, such as 1%,10%,100%"
        )
    return tuple(shares)


def start_rollout(
    bundle: Address,
    place: Address,
    waves: Sequence[int],
    key: SigningKey,
    *,
    plain_http: bool = False,
    events: Events = SILENT,
) -> Rollout:
    """Begin to give a published bundle to a channel, whose rollout is kept at `place`."""
    memory = Memory(place, key.public)
    with memory.held(), events.stage(f"start the rollout {place}"):
        repository = Repository(Connection(bundle, plain_http=plain_http))
        data = repository.document(bundle.tag)
        if data is None:
            raise RegistryError(
                f"{bundle.host} has no {bundle.name}:{bundle.tag}",
                hint="publish the bundle first: edgekit publish BUNDLE ADDRESS",
            )
        signed = read_document(data, bundle, key.public).statement
        last = _present(repository, place, key.public, memory)
        if last is not None and not last.has_ended:
            raise UsageError(
                f"the channel {last.channel} is in the middle of a rollout of {last.version.tag}",
                hint="end it first: edgekit rollout next, or edgekit rollout back",
            )
        version = Version(signed.tag, signed.manifest, signed.board)
        before = None
        if last is not None:
            before = last.version if last.share else last.before
        rollout = Rollout(
            kind="rollout",
            name=place.name,
            channel=place.tag.removeprefix("rollout-"),
            state="running",
            version=version,
            before=before,
            waves=tuple(waves),
            wave=0,
            counter=_counter(last, memory),
        )
        _write(repository, place, rollout, key, memory)
    return rollout


def move_rollout(
    place: Address,
    move: Move,
    key: SigningKey,
    *,
    plain_http: bool = False,
    events: Events = SILENT,
) -> Rollout:
    """Go on to the next wave, pause, resume, or take everything back."""
    memory = Memory(place, key.public)
    with memory.held(), events.stage(f"change the rollout {place}"):
        repository = Repository(Connection(place, plain_http=plain_http))
        last = _present(repository, place, key.public, memory)
        if last is None:
            raise _none(place)
        changed = replace(_moved(last, move), counter=_counter(last, memory))
        _write(repository, place, changed, key, memory)
    return changed


def read_rollout(place: Address, key: PublicKey, *, plain_http: bool = False) -> Rollout:
    """Read and verify the rollout of a channel; older ones than were seen are refused."""
    memory = Memory(place, key)
    with memory.held():
        found = _present(Repository(Connection(place, plain_http=plain_http)), place, key, memory)
        if found is None:
            raise _none(place)
        memory.remember(found.counter, _content(found))
    return found


def _moved(rollout: Rollout, move: Move) -> Rollout:
    if move == "back":
        return replace(rollout, state="back")
    if rollout.state == "back":
        raise UsageError("the rollout was taken back", hint="start another: edgekit rollout start")
    if move == "pause":
        return replace(rollout, state="paused")
    if move == "resume":
        return replace(rollout, state="running")
    if rollout.state == "paused":
        raise UsageError("the rollout is paused", hint="edgekit rollout resume goes on with it")
    if rollout.wave + 1 == len(rollout.waves):
        raise UsageError("this is the last wave", hint="start another: edgekit rollout start")
    return replace(rollout, wave=rollout.wave + 1)


def _present(
    repository: Repository, place: Address, key: PublicKey, memory: Memory
) -> Rollout | None:
    data = repository.document(place.tag)
    if data is None:
        return None
    found, _ = read_statement(Rollout, data, place, key)
    if f"rollout-{found.channel}" != place.tag or found.name != place.name:
        raise SignatureError(
            f"{place} holds what was signed for {found.name!a}, channel {found.channel!a}",
            hint=AGAIN,
        )
    memory.check(found.counter, _content(found))
    return found


def _write(
    repository: Repository, place: Address, rollout: Rollout, key: SigningKey, memory: Memory
) -> None:
    sha256 = sha256_bytes(_EMPTY)
    if not repository.has_blob(sha256):
        repository.put_blob(sha256, BytesIO(_EMPTY), len(_EMPTY), lambda count: None)
    text = json_line(encode(rollout))
    repository.put_document(place.tag, signed_document(_TYPE, _EMPTY_CONFIG, (), text, key))
    memory.remember(rollout.counter, _content(rollout))


def _counter(last: Rollout | None, memory: Memory) -> int:
    counters = [one.counter for one in (last, memory.latest()) if one is not None]
    return max(counters, default=0) + 1


def _content(rollout: Rollout) -> str:
    return sha256_bytes(json_line(encode(rollout)).encode())


def _none(place: Address) -> RegistryError:
    return RegistryError(
        f"{place.host} has no rollout {place.name}:{place.tag}",
        hint="check the channel; edgekit rollout start begins one",
    )
