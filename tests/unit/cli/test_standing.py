"""What is said of a stage under way: its share, what remains, and what the last time took."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.events import StageEnded, StageProgress, StageStarted
from edgekit.cli.progress import Standing, Standings


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("done", "total", "before", "elapsed", "said"),
    [
        (0, 100, None, 5, "0 %"),
        (50, 100, None, 1, "50 %"),
        (50, 100, None, 10, "50 %, about 10 s left"),
        (99, 100, None, 1000, "99 %, about 10 s left"),
        (100, 100, None, 10, "100 %"),
        (0, None, None, 10, ""),
        (0, None, 100.0, 10, "about 1 min 30 s left"),
        (0, None, 5.0, 10, ""),
        (0, 100, 100.0, 10, "0 %, about 1 min 30 s left"),
        (50, 100, 100.0, 10, "50 %, about 10 s left"),
    ],
)
def test_the_share_and_what_remains(
    done: int, total: int | None, before: float | None, elapsed: float, said: str
) -> None:
    assert Standing("t", total, 0.0, before, done).in_words(elapsed) == said


@pytest.mark.parametrize(
    ("done", "total", "complete"), [(0, None, False), (5, 9, False), (9, 9, True)]
)
def test_a_stage_whose_steps_are_done_needs_no_line_more(
    done: int, total: int | None, complete: bool
) -> None:
    assert Standing("t", total, 0.0, None, done).is_complete is complete


@given(st.integers(1, 10**9), st.integers(0, 10**10), st.floats(0, 1e6))
def test_a_share_is_between_0_and_100(total: int, done: int, elapsed: float) -> None:
    words = Standing("t", total, 0.0, None, done).in_words(elapsed)
    assert 0 <= int(words.split()[0]) <= 100


def test_a_stage_without_steps_is_estimated_by_the_last_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "durations.json"

    def one(seconds: float, title: str = "compile", *, failed: bool = False) -> str:
        clock = Clock()
        stages = Standings(clock, file)
        stage = stages.begin(StageStarted(title, None))
        clock.now += 2
        said = stage.in_words(clock.now)
        stages.end(StageEnded(title, seconds, "", failed))
        return said

    assert one(30.0) == ""
    assert one(12.0, failed=True) == "about 28 s left", "the last time took 30 s"
    assert one(1.0) == "about 28 s left", "a failed one is no measure"
    assert one(20.0) == "about 28 s left", "a short one, such as from a cache, is none either"
    assert one(20.0) == "about 18 s left"
    assert one(20.0, "another") == ""


@pytest.mark.parametrize("content", ["", "[]", "{", '{"t": "x"}', '{"t": -1}', '{"t": 1e99}'])
def test_a_damaged_file_of_durations_gives_no_estimate(content: str, tmp_path: Path) -> None:
    (tmp_path / "d").write_text(content)
    stages = Standings(Clock(), tmp_path / "d")
    assert stages.begin(StageStarted("t", None)).in_words(3) == ""
    stages.end(StageEnded("t", 5.0, "", False))
    assert json.loads((tmp_path / "d").read_text()) == {"t": 5.0}


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    stages = Standings(Clock(), tmp_path / "file" / "durations.json")
    stages.begin(StageStarted("t", None))
    stages.end(StageEnded("t", 5.0, "", False))


def test_stages_within_stages_are_told_apart_by_their_titles() -> None:
    stages = Standings(Clock(), Path("/nonexistent/none"))
    outer, inner = (stages.begin(StageStarted(title, 4)) for title in ("outer", "inner"))
    stages.advance(StageProgress("outer", 3, 4, "x"))
    assert (outer.done, inner.done) == (3, 0)
    assert stages.end(StageEnded("inner", 1.0, "", False)) is inner
    assert stages.open == [outer]
