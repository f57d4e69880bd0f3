"""Stages whose steps are found out while they run."""

from __future__ import annotations

import threading

from edgekit.base.events import Event, Events, StageProgress


def test_a_total_that_becomes_known_later_is_told() -> None:
    heard: list[Event] = []
    with Events(heard.append).stage("fetch") as stage:
        stage.advance(10)
        stage.expect(200)
        stage.advance(40)
    said = [(e.done, e.total) for e in heard if isinstance(e, StageProgress)]
    assert said == [(10, None), (10, 200), (50, 200)]


def test_files_that_grow_are_progress() -> None:
    heard: list[Event] = []
    arrived = threading.Event()

    def listen(event: Event) -> None:
        heard.append(event)
        if isinstance(event, StageProgress) and event.done == 70:
            arrived.set()

    sizes = iter([30, OSError("gone"), 20, 70])  # a file may vanish, and a partial one be replaced

    def measure() -> int:
        found = next(sizes, 70)
        if isinstance(found, OSError):
            raise found
        return found

    with Events(listen).stage("fetch", 100) as stage, stage.watching(measure):
        assert arrived.wait(600)
    done = [event.done for event in heard if isinstance(event, StageProgress)]
    assert done == sorted(done)
    assert done[-1] == 70
