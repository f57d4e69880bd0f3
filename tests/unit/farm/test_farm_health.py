"""A device's state follows from what happens to it, and no sequence of events strands it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgekit.farm.health import (
    SERVING,
    Health,
    Limits,
    came_up,
    drained,
    resumed,
    silence_of_a_turn,
    time_passed,
    was_given_back,
    was_lost,
    was_taken,
)

LIMITS = Limits(faults=3, window=600, first_rest=60, longest_rest=240)


def test_a_device_comes_up_is_taken_and_given_back() -> None:
    health = came_up(Health(), 1.0)
    assert health.state == "free"
    health = was_taken(health, 2.0)
    assert (health.state, health.sessions) == ("busy", 1)
    assert was_given_back(health, 3.0).state == "free"


def test_a_lost_device_is_tried_again_later_each_time() -> None:
    limits = Limits(faults=99)
    health, waits = Health(), []
    now = 0.0
    for _ in range(7):
        health = was_lost(health, "no route", now, limits)
        assert health.state == "lost"
        assert health.again_at is not None
        waits.append(health.again_at - now)
        assert not health.wants_worker
        now = health.again_at
        health = time_passed(health, now, limits)
        assert health.wants_worker
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_repeated_losses_bring_quarantine_longer_each_time_and_an_end_of_it() -> None:
    health, now, rests = Health(), 0.0, []
    for _ in range(4):
        for _ in range(LIMITS.faults):
            health = was_lost(came_up(health, now), "it restarted", now, LIMITS)
            if health.state == "lost":
                now = health.again_at or now
                health = time_passed(health, now, LIMITS)
        assert health.state == "quarantined"
        assert "3 times" in health.reason
        assert "it restarted" in health.reason
        rests.append((health.again_at or 0) - now)
        now = health.again_at or now
        health = time_passed(health, now, LIMITS)
        assert health.state == "starting"
    assert rests == [60, 120, 240, 240]
    health = came_up(health, now)
    assert time_passed(health, now + 10_000, LIMITS).rests == 0, "it did well for long"


def test_losses_far_apart_are_no_reason_for_quarantine() -> None:
    health = Health()
    for now in (0.0, 700.0, 1400.0, 2100.0):
        health = was_lost(came_up(health, now), "network", now, LIMITS)
        assert health.state == "lost"


def test_a_drain_waits_for_the_session_and_nothing_else() -> None:
    busy = was_taken(came_up(Health(), 0), 1)
    draining = drained(busy, 2)
    assert draining.state == "draining"
    assert was_given_back(draining, 3).state == "drained"
    assert was_lost(draining, "gone", 3, LIMITS).state == "drained"
    assert drained(came_up(Health(), 0), 1).state == "drained"
    assert resumed(draining, 3).state == "busy"
    assert resumed(drained(Health(), 1), 2).state == "starting"


def test_resuming_ends_a_quarantine_with_a_clean_record() -> None:
    health = Health()
    for now in (0.0, 1.0, 2.0):
        health = was_lost(health, "x", now, LIMITS)
    health = resumed(health, 3.0)
    assert (health.state, health.faults, health.rests) == ("starting", (), 0)


EVENTS = {
    "up": lambda h, now: came_up(h, now),
    "taken": lambda h, now: was_taken(h, now),
    "back": lambda h, now: was_given_back(h, now),
    "lost": lambda h, now: was_lost(h, "x", now, LIMITS),
    "drain": lambda h, now: drained(h, now),
    "resume": lambda h, now: resumed(h, now),
    "time": lambda h, now: time_passed(h, now, LIMITS),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.floats(0, 400)), max_size=60))
def test_whatever_happens_a_device_is_had_again_unless_somebody_drained_it(
    events: list[tuple[str, float]],
) -> None:
    health, now, by_hand = Health(), 0.0, False
    for name, pause in events:
        now += pause
        health = EVENTS[name](health, now)
        if name == "drain":
            by_hand = True
        elif name == "resume":
            by_hand = False
        assert (health.state in ("drained", "draining")) <= by_hand
        assert len(health.faults) <= LIMITS.faults + len(events)
    later = time_passed(health, now + LIMITS.longest_rest + 1, LIMITS)
    assert later.wants_worker == (later.state in SERVING)
    if not by_hand:
        assert later.wants_worker


@given(
    turns=st.lists(st.floats(0.0, 0.5), min_size=1, max_size=50),
    pause=st.floats(0.0, 1e6),
    place=st.integers(0, 50),
)
def test_a_pause_of_the_keeper_is_no_silence_of_its_workers(
    turns: list[float], pause: float, place: int
) -> None:
    moments = [0.0]
    for number, turn in enumerate(turns):
        moments.append(moments[-1] + turn + (pause if number == place else 0.0))

    counted = sum(map(silence_of_a_turn, moments, moments[1:]))

    assert counted <= sum(turns) + 1.0 + 1e-6
    assert counted >= sum(turns) - 1e-6 * len(turns) - (0.0 if pause < 1e3 else 1e-3)
