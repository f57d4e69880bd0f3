"""Some of what `make faults` lets go wrong; all of it takes too long for every run."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.__main__ import all_faults
from faults.device_faults import an_agent_is_killed
from faults.keeper_faults import the_keeper_is_killed


@pytest.mark.slow
def test_work_finishes_though_agents_are_killed(tmp_path: Path) -> None:
    an_agent_is_killed(tmp_path / "world")


def test_work_finishes_though_the_keeper_is_killed(tmp_path: Path) -> None:
    the_keeper_is_killed(tmp_path / "world")


def test_there_are_at_least_24_faults() -> None:
    assert len(all_faults()) >= 24
