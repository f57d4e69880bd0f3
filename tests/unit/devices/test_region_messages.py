"""What regions of a model say while they run: progress, and how they run."""

from __future__ import annotations

from edgekit.base.events import Event, Events, Note, StageStarted, Warned
from edgekit.devices.linux.region_work import Told, WorkShown, working_in


def heard(*sentences: str, told: Told | None = None, aloud: bool = True) -> list[Event]:
    events: list[Event] = []
    with WorkShown(Events(events.append), "board", told, aloud=aloud) as work:
        for sentence in sentences:
            work.hear(working_in({"working": sentence}))
    return events


def test_how_a_region_runs_is_told_once_and_kept() -> None:
    told = Told()

    first = heard("warning: on the CPU", "note: on a GPU", "warning: on the CPU", told=told)
    second = heard("note: on a GPU", told=told)

    assert first == [Warned("on the CPU"), Note("on a GPU")]
    assert second == []
    assert (told.warnings, told.notes) == (["on the CPU"], ["on a GPU"])


def test_a_measurement_keeps_it_for_its_report() -> None:
    told = Told()

    assert heard("warning: on the CPU", told=told, aloud=False) == []
    assert told.warnings == ["on the CPU"]


def test_a_device_that_never_stops_telling_does_not_fill_the_memory() -> None:
    told = Told()

    heard(*(f"note: {number}" for number in range(1000)), told=told)

    assert len(told.notes) == 100


def test_progress_is_a_stage() -> None:
    events = heard("building an engine: 5 %")

    assert isinstance(events[0], StageStarted)
