from __future__ import annotations

import pytest

from edgekit.base.decode import DecodeError, decode, encode
from edgekit.base.errors import UsageError
from edgekit.registry.address import parse_rollout
from edgekit.registry.rollout import Rollout, Version, parse_waves

VERSION = Version("1", "ab" * 32, "rpi4")


def rollout(**changes: object) -> Rollout:
    fields: dict[str, object] = {
        "kind": "rollout",
        "name": "net",
        "channel": "kitchen",
        "state": "running",
        "version": VERSION,
        "before": None,
        "waves": (100, 10_000),
        "wave": 0,
        "counter": 1,
    }
    return Rollout(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("1%,10%,100%", (100, 1000, 10_000)),
        ("0.07%, 0.5%,33.33%", (7, 50, 3333)),
        ("100%", (10_000,)),
    ],
)
def test_waves_are_shares_of_a_channel(text: str, shares: tuple[int, ...]) -> None:
    assert parse_waves(text) == shares


@pytest.mark.parametrize(
    "text",
    ["", "10", "10%,1%", "0%", "101%", "5%,5%", "x%", "nan%", "inf%", "1e1%", "0.001%", "-1%"],
)
def test_other_words_are_no_waves(text: str) -> None:
    with pytest.raises(UsageError, match="are no waves"):
        parse_waves(text)


def test_what_is_signed_is_read_back_as_it_was() -> None:
    before = rollout(before=VERSION, state="paused", wave=1)

    assert decode(Rollout, encode(before)) == before


@pytest.mark.parametrize(
    "changes", [{"wave": 2}, {"waves": (100, 50)}, {"waves": ()}, {"waves": (0, 100)}]
)
def test_waves_that_can_not_be_are_refused(changes: dict[str, object]) -> None:
    document = {**encode(rollout()), **changes}

    with pytest.raises(DecodeError):
        decode(Rollout, document)


def test_a_board_keeps_its_place_in_a_rollout_and_gets_another_in_the_next() -> None:
    boards = [f"board-{number}" for number in range(1000)]
    half = rollout(waves=(5000,))
    next_one = rollout(waves=(5000,), version=Version("2", "cd" * 32, "rpi4"))

    first = {board for board in boards if half.version_for(board)}
    second = {board for board in boards if next_one.version_for(board)}

    assert first == {board for board in boards if rollout(waves=(5000,)).version_for(board)}
    assert 0.15 < len(first & second) / len(boards) < 0.35


def test_a_channel_has_a_plain_name() -> None:
    assert parse_rollout("oci://localhost:5000/net", "kitchen").tag == "rollout-kitchen"
    for repository, channel in (("oci://localhost/net", "a b"), ("oci://localhost/net:1", "k")):
        with pytest.raises(UsageError):
            parse_rollout(repository, channel)
