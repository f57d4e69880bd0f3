"""Parsers of what comes from outside, with whole data, with data that they once fell over, and with
some that is damaged. `make fuzz` goes on where this ends."""

from __future__ import annotations

import traceback
from pathlib import Path
from random import Random

import pytest
from fuzz.crashes import FOLDER, crashes_of
from fuzz.mutation import damaged
from fuzz.native import native_targets, replay_native
from fuzz.targets import all_targets
from support.needs import needs

TARGETS = all_targets()
NATIVE = (
    *("agent npy", "agent requests", "agent tracker", "agent documents"),
    *("app pictures", "firmware frame", "firmware serve"),
)
DAMAGED = 40
NOT_ALL_TAKEN = {"json", "npy input"}
"""Targets with seeds of which some are refused: several lines, other shapes."""


@pytest.mark.parametrize("name", TARGETS)
def test_whole_data_is_taken_and_damaged_data_refused_as_it_should_be(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()
    chance = Random(name)

    taken = [not target.try_with(data).refused_at for data in seeds]
    assert all(taken) or (name in NOT_ALL_TAKEN and any(taken)), "a seed should be whole"
    tried = [*seeds, *crashes_of(name).values(), *(damaged(seeds, chance) for _ in range(DAMAGED))]
    for data in tried:
        fault = target.try_with(data).fault
        assert fault is None, "".join(traceback.format_exception(fault)) + f"\n{data[:2000]!r}"


@needs("clang")
@pytest.mark.parametrize("name", NATIVE)
def test_parsers_in_c_step_nowhere_that_they_should_not(name: str, tmp_path: Path) -> None:
    replay_native(name, tmp_path)


def test_every_crash_that_was_kept_belongs_to_a_target() -> None:
    kept = {path.name for path in FOLDER.iterdir()}
    assert kept == {file for name in (*TARGETS, *NATIVE) for file in crashes_of(name)}


@needs("clang")
def test_every_parser_in_c_is_replayed() -> None:
    assert set(native_targets()) == set(NATIVE)
