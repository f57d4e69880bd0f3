"""Decides by boards' reports how a rollout goes on: the next wave, a stop, or nothing yet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from edgekit.base.events import SILENT, Events
from edgekit.base.wording import counted, duration
from edgekit.registry.address import Address
from edgekit.registry.keys import SigningKey
from edgekit.registry.reports import BoardReport, read_reports
from edgekit.registry.rollout import ALL, Rollout, change_rollout, moved

_MOST_SHOWN = 10


@dataclass(frozen=True)
class WaveTally:
    """The boards that a wave added."""

    share: int
    """The share of the channel up to this wave, in hundredths of a percent."""
    healthy: int
    failed: int

    @property
    def reported(self) -> int:
        return self.healthy + self.failed


@dataclass(frozen=True)
class Frequent:
    """A digest or an error, and how many boards report it."""

    text: str
    boards: int


@dataclass(frozen=True)
class Tally:
    """What boards report about a rollout, each board counted once."""

    healthy: int
    failed: int
    waves: tuple[WaveTally, ...]
    digests: tuple[Frequent, ...]
    """The versions that boards of the channel took last, whichever rollout gave them."""
    errors: tuple[Frequent, ...]
    median_nanoseconds: float | None
    """The median over the healthy boards of the time of an inference."""

    @property
    def reported(self) -> int:
        return self.healthy + self.failed


@dataclass(frozen=True)
class Tended:
    """A rollout after a look at its reports."""

    rollout: Rollout
    tally: Tally
    move: Literal["next", "stop"] | None
    """What was done; None if the rollout is as it was."""
    reason: str
    is_over: bool
    """Whether nothing more happens by itself."""


@dataclass(frozen=True)
class Decision:
    move: Literal["next", "stop"] | None
    reason: str
    is_over: bool = False


def tally(rollout: Rollout, reports: Iterable[BoardReport]) -> Tally:
    """Count the reports of the boards that may have the rollout's version.

    A failure from before the latest start or resumption does not count.
    """
    healthy, failed = [0] * len(rollout.waves), [0] * len(rollout.waves)
    digests: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    times = []
    for report in reports:
        if report.outcome == "updated":
            digests[report.manifest] += 1
        place = rollout.place_of(report.board)
        wave = next((i for i, share in enumerate(rollout.waves) if place < share), None)
        # After a rollout was taken back, its waves still say how it went.
        if report.manifest != rollout.version.manifest or wave is None or wave > rollout.wave:
            continue
        if report.outcome == "updated" and report.verified:
            healthy[wave] += 1
            if report.nanoseconds is not None:
                times.append(report.nanoseconds)
        elif rollout.judged <= report.counter <= rollout.counter:
            failed[wave] += 1
            errors[report.error or "no reason given"] += 1
    return Tally(
        healthy=sum(healthy),
        failed=sum(failed),
        waves=tuple(map(WaveTally, rollout.waves, healthy, failed)),
        digests=_most_frequent(digests),
        errors=_most_frequent(errors),
        median_nanoseconds=median(times) if times else None,
    )


def decide(rollout: Rollout, seen: Tally, now: float) -> Decision:
    """Say what follows from the reports at a time in seconds since 1970."""
    if rollout.state != "running":
        return Decision(None, f"the rollout is {rollout.state}", is_over=True)
    limit = rollout.most_failures
    if limit is not None and seen.failed * ALL > limit * seen.reported:
        boards = counted(seen.reported, "board")
        return Decision("stop", f"{seen.failed} of {boards} that reported failed", is_over=True)
    if rollout.healthy_seconds is None:
        return Decision(None, "its waves begin by hand")
    if not seen.waves[rollout.wave].reported:
        return Decision(None, "no board that this wave added has reported")
    left = rollout.began + rollout.healthy_seconds - now
    if left > 0:
        return Decision(None, f"the wave has to stay healthy for {duration(left)} more")
    if rollout.is_last_wave:
        return Decision(None, "the last wave is healthy", is_over=True)
    return Decision("next", f"the wave was healthy for {duration(rollout.healthy_seconds)}")


def tend_rollout(
    place: Address,
    key: SigningKey,
    file: Path,
    *,
    plain_http: bool = False,
    events: Events = SILENT,
) -> Tended:
    """Look at a rollout's reports once, and sign what follows from them."""
    now = time.time()
    looked: list[tuple[Tally, Decision]] = []

    def change(last: Rollout, counter: int) -> Rollout | None:
        seen = tally(last, read_reports(file, place))
        decided = decide(last, seen, now)
        looked.append((seen, decided))
        return None if decided.move is None else moved(last, decided.move, counter)

    rollout = change_rollout(place, key, change, plain_http=plain_http, events=events)
    ((seen, decided),) = looked
    return Tended(rollout, seen, decided.move, decided.reason, decided.is_over)


def _most_frequent(counted_words: Counter[str]) -> tuple[Frequent, ...]:
    return tuple(Frequent(*one) for one in counted_words.most_common(_MOST_SHOWN))
