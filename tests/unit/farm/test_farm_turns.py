"""Turns on a device: fair, and no client waits for one that is gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.devices.keeper_messages import Reservation
from edgekit.farm.turns import LeaseRequest, Turns, user_of


def request(number: int, owner: str = "me", seconds: float | None = 10) -> LeaseRequest:
    return LeaseRequest(number, owner, "tuning", seconds)


def test_whoever_came_first_goes_first() -> None:
    turns = Turns()
    for number in (1, 2):
        turns.add(request(number))
    assert turns.next(0, lambda owner: 0) == request(1)
    assert turns.next(0, lambda owner: 0) is None
    turns.remove(1)
    assert turns.next(0, lambda owner: 0) == request(2)


def test_whoever_has_fewer_devices_goes_before_those_who_came_first() -> None:
    turns = Turns()
    turns.add(request(1, "greedy"))
    turns.add(request(2, "modest"))
    assert turns.next(0, {"greedy": 2, "modest": 0}.__getitem__) == request(2, "modest")


def test_a_lease_ends_at_its_time_and_not_before() -> None:
    turns = Turns()
    turns.add(request(1, seconds=5))
    turns.next(100, lambda owner: 0)
    assert turns.lease is not None
    assert turns.lease.until == 105
    assert turns.expired(104.9) is None
    assert turns.expired(105) == request(1, seconds=5)
    assert turns.lease is None


def test_a_lease_without_a_limit_stays() -> None:
    turns = Turns()
    turns.add(request(1, seconds=None))
    turns.next(100, lambda owner: 0)
    assert turns.expired(1e12) is None
    assert turns.lease is not None
    assert turns.lease.until is None


def test_a_reservation_lets_its_user_pass_and_keeps_the_others_waiting() -> None:
    turns = Turns()
    turns.reservation = Reservation("ada@lab", 1000)
    turns.add(request(1, "bob@lab:7"))
    assert turns.next(0, lambda owner: 0) is None
    turns.add(request(2, "ada@lab:9"))
    turns.add(request(3, "ada@lab:10"))
    # Her requests come first, even that of a process that has devices.
    held = {"bob@lab:7": 0, "ada@lab:9": 2, "ada@lab:10": 1}.__getitem__
    assert [one.number for one in turns.queue(held)] == [3, 2, 1]
    assert turns.next(0, held) == request(3, "ada@lab:10")
    turns.remove(3)
    turns.remove(2)
    turns.reservation = None
    assert turns.next(0, held) == request(1, "bob@lab:7")


@pytest.mark.parametrize(
    ("owner", "user"), [("ada@lab:7", "ada@lab"), ("a:b@lab:7", "a:b@lab"), ("me", "me")]
)
def test_a_user_is_an_owner_without_its_process(owner: str, user: str) -> None:
    assert user_of(owner) == user


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "next"]), st.integers(0, 5))))
def test_nobody_has_it_twice_and_the_gone_never_get_it(steps: list[tuple[str, int]]) -> None:
    turns, there = Turns(), set[int]()
    for step, number in steps:
        if step == "add" and number not in there:
            there.add(number)
            turns.add(request(number))
        elif step == "remove":
            there.discard(number)
            turns.remove(number)
        elif step == "next":
            before = turns.holder
            got = turns.next(0, lambda owner: 0)
            assert got is None or (before is None and got.number in there)
        held = [turns.holder.number] if turns.holder is not None else []
        assert sorted(held + [one.number for one in turns.waiting]) == sorted(there)
        assert turns.holder is not None or not turns.waiting or step != "next"
