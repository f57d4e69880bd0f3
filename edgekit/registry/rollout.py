"""Rollouts: a signed document in a registry says which share of a channel takes which bundle.

A board's share follows from a hash of its name, so that no list of boards is needed.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
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
_LONGEST_SECONDS = 100 * 86_400
_TYPE = "application/vnd.edgekit.rollout.v1+json"
_EMPTY = b"{}"
_EMPTY_CONFIG = {
    "mediaType": "application/vnd.oci.empty.v1+json",
    "digest": f"sha256:{sha256_bytes(_EMPTY)}",
    "size": len(_EMPTY),
}

Move = Literal["next", "pause", "resume", "stop", "back"]


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
    state: Literal["running", "paused", "stopped", "back"]
    """Stopped: too many boards failed."""
    version: Version
    before: Version | None
    """What the rest of the channel keeps; None before the first rollout has ended."""
    waves: Annotated[tuple[Annotated[int, Range(1, ALL)], ...], Most(_MOST_WAVES, "waves")]
    """The share of each wave, in hundredths of a percent."""
    wave: Count
    counter: Count
    healthy_seconds: Annotated[int, Range(1, _LONGEST_SECONDS)] | None = None
    """The time after which a healthy wave is followed by the next one; None if that is done by
    hand."""
    most_failures: Annotated[int, Range(0, ALL)] | None = None
    """The share of the boards that reported which may have failed, in hundredths of a percent."""
    began: Count = 0
    """The second since 1970 at which the present wave began or was resumed, by the signer's clock.
    Boards do not look at it."""
    judged: Count = 0
    """The number of the document from which on failures count: of the start or of the latest
    resumption."""

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

    @property
    def is_last_wave(self) -> bool:
        return self.wave + 1 == len(self.waves)

    def place_of(self, board: str) -> int:
        """Return a board's place in the channel, below ALL."""
        words = f"{self.name}\n{self.channel}\n{self.version.manifest}\n{board}"
        return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big") % ALL

    def version_for(self, board: str) -> Version | None:
        """Return what a board of this name takes; None if there is nothing for it yet."""
        return self.version if self.place_of(board) < self.share else self.before


@dataclass(frozen=True)
class Limits:
    """How a rollout goes on by itself."""

    healthy_seconds: int | None = None
    most_failures: int | None = None


def parse_waves(text: str) -> tuple[int, ...]:
    """Read shares such as 1%,10%,100%, which grow."""
    shares = [_hundredths(word) for word in text.split(",")]
    known = [share for share in shares if share is not None]
    fit = len(known) == len(shares) <= _MOST_WAVES and known == sorted(set(known))
    if not fit or known[0] < 1:
        raise UsageError(
            f"{text[:80]!r} are no waves", hint="write shares that grow, such as 1%,10%,100%"
        )
    return tuple(known)


def parse_limits(healthy_after: float | None, max_failures: str | None) -> Limits:
    """Read the seconds after which a wave is healthy, and a share such as 2%."""
    share = None if max_failures is None else _hundredths(max_failures)
    if max_failures is not None and share is None:
        raise UsageError(f"{max_failures[:80]!r} is no share", hint="write a share such as 2%")
    if healthy_after is not None and not 1 <= healthy_after <= _LONGEST_SECONDS:
        raise UsageError(
            f"a wave can't be healthy after {healthy_after:g} s",
            hint="write a time from a second to 100 days, such as 1h",
        )
    return Limits(None if healthy_after is None else round(healthy_after), share)


def _hundredths(text: str) -> int | None:
    found = _SHARE.fullmatch(text.strip())
    share = int(found[1]) * 100 + int((found[2] or "").ljust(2, "0")) if found else ALL + 1
    return share if share <= ALL else None


def start_rollout(
    bundle: Address,
    place: Address,
    waves: Sequence[int],
    key: SigningKey,
    *,
    limits: Limits = Limits(),
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
        counter = _counter(last, memory)
        rollout = Rollout(
            kind="rollout",
            name=place.name,
            channel=place.tag.removeprefix("rollout-"),
            state="running",
            version=version,
            before=before,
            waves=tuple(waves),
            wave=0,
            counter=counter,
            healthy_seconds=limits.healthy_seconds,
            most_failures=limits.most_failures,
            began=_now(),
            judged=counter,
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
    """Go on to the next wave, pause, resume, stop, or take everything back."""
    return change_rollout(
        place,
        key,
        lambda last, counter: moved(last, move, counter),
        plain_http=plain_http,
        events=events,
    )


def change_rollout(
    place: Address,
    key: SigningKey,
    change: Callable[[Rollout, int], Rollout | None],
    *,
    plain_http: bool = False,
    events: Events = SILENT,
) -> Rollout:
    """Sign what `change` makes of the present rollout, if anything, and return the result.

    It is given the number of the new document too.
    """
    memory = Memory(place, key.public)
    with memory.held(), events.stage(f"change the rollout {place}"):
        repository = Repository(Connection(place, plain_http=plain_http))
        last = _present(repository, place, key.public, memory)
        if last is None:
            raise _none(place)
        changed = change(last, _counter(last, memory))
        if changed is None:
            return last
        _write(repository, place, changed, key, memory)
    return changed


def read_rollout(place: Address, key: PublicKey, *, plain_http: bool = False) -> Rollout:
    """Read and verify the rollout of a channel; older ones than were seen are refused."""
    memory = Memory(place, key)
    with memory.held():
        found = _present(Repository(Connection(place, plain_http=plain_http)), place, key, memory)
        if found is None:
            raise _none(place)
    return found


def moved(rollout: Rollout, move: Move, counter: int) -> Rollout:
    """Return the rollout's next document; UsageError if the move can't be made."""
    changed = replace(rollout, counter=counter)
    if move == "back":
        return replace(changed, state="back")
    if rollout.state == "back":
        raise UsageError("the rollout was taken back", hint="start another: edgekit rollout start")
    if move == "pause":
        return replace(changed, state="paused")
    if move == "stop":
        return replace(changed, state="stopped")
    if move == "resume":
        return replace(changed, state="running", began=_now(), judged=counter)
    if rollout.state != "running":
        raise UsageError(
            f"the rollout is {rollout.state}", hint="edgekit rollout resume goes on with it"
        )
    if rollout.is_last_wave:
        raise UsageError("this is the last wave", hint="start another: edgekit rollout start")
    return replace(changed, wave=rollout.wave + 1, began=_now())


def _present(
    repository: Repository, place: Address, key: PublicKey, memory: Memory
) -> Rollout | None:
    data = repository.document(place.tag)
    if data is None:
        return None
    found, text = read_statement(Rollout, data, place, key)
    if f"rollout-{found.channel}" != place.tag or found.name != place.name:
        raise SignatureError(
            f"{place} holds what was signed for {found.name!a}, channel {found.channel!a}",
            hint=AGAIN,
        )
    content = sha256_bytes(text.encode())
    memory.check(found.counter, content)
    memory.remember(found.counter, content)
    return found


def _write(
    repository: Repository, place: Address, rollout: Rollout, key: SigningKey, memory: Memory
) -> None:
    sha256 = sha256_bytes(_EMPTY)
    if not repository.has_blob(sha256):
        repository.put_blob(sha256, BytesIO(_EMPTY), len(_EMPTY), lambda count: None)
    text = json_line(encode(rollout))
    repository.put_document(place.tag, signed_document(_TYPE, _EMPTY_CONFIG, (), text, key))
    memory.remember(rollout.counter, sha256_bytes(text.encode()))


def _counter(last: Rollout | None, memory: Memory) -> int:
    counters = [one.counter for one in (last, memory.latest()) if one is not None]
    return max(counters, default=0) + 1


def _now() -> int:
    return max(0, int(time.time()))


def _none(place: Address) -> RegistryError:
    return RegistryError(
        f"{place.host} has no rollout {place.name}:{place.tag}",
        hint="check the channel; edgekit rollout start begins one",
    )
