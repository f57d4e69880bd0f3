"""Choices of schedules: what is written is what is read, and what is worth trying can be done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.schedules.candidates import (
    depthwise_candidates,
    generic_candidates,
    product_candidates,
)
from edgekit.compiler.schedules.choices import (
    Choice,
    DepthwiseChoice,
    GenericChoice,
    ProductChoice,
    choice_as_json,
    choice_from_json,
    on_its_cores,
)
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.problem import Problem, dense_problem, read_problem
from edgekit.compiler.schedules.tiles import Tile

NUMBERS = st.integers(1, 64)
MAYBE = st.none() | NUMBERS
FLAGS = st.none() | st.booleans()
CHOICES: st.SearchStrategy[Choice] = st.one_of(
    st.builds(
        ProductChoice,
        st.none() | st.builds(Tile, NUMBERS, NUMBERS, NUMBERS),
        NUMBERS,
        NUMBERS,
        FLAGS,
        FLAGS,
    ),
    st.builds(DepthwiseChoice, MAYBE, MAYBE, NUMBERS, FLAGS),
    st.builds(GenericChoice, MAYBE, st.booleans(), FLAGS),
)
AVX512, NEON = Machine(16, 32, 4), Machine(4, 32, 4)


@given(CHOICES)
def test_a_choice_is_read_as_it_was_written(choice: Choice) -> None:
    assert choice_from_json(choice_as_json(choice)) == choice


@pytest.mark.parametrize(
    "change",
    [
        {"family": "winograd"},
        {"unrolled": 0},
        {"unrolled": True},
        {"unrolled": None},
        {"unrolled": 1 << 30},
        {"tile": {"lines": 1, "pixels": 2}},
        {"tile": [1, 2, 3]},
        {"parallel": 1},
        {"other": 1},
    ],
)
def test_what_no_edgekit_wrote_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        choice_from_json({**choice_as_json(ProductChoice()), **change})


def test_a_choice_says_what_differs_from_the_rules_own() -> None:
    assert ProductChoice().words == DepthwiseChoice().words == GenericChoice().words == ""
    assert ProductChoice(Tile(1, 6, 32)).words == "tile 6x32"
    assert ProductChoice(unrolled=8, parallel=False).words == "unrolled 8, one core"


@pytest.mark.parametrize("machine", [AVX512, NEON])
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 300), st.integers(1, 600))
def test_candidates_begin_with_the_rules_own_and_differ(
    machine: Machine, lines: int, pixels: int, depth: int, columns: int
) -> None:
    problem = dense_problem((lines, pixels, depth), depth, columns)

    found = product_candidates(problem, lines, pixels, machine)

    assert found[0] == ProductChoice()
    assert len(set(found)) == len(found)
    for choice in found:
        assert isinstance(choice, ProductChoice)
        if choice.tile is not None:
            vectors = -(-choice.tile.channels // machine.lanes)
            assert (choice.tile.sums + 1) * vectors < machine.registers


def test_other_families_begin_with_their_own_too() -> None:
    assert depthwise_candidates(96, 56, 10_000_000, AVX512)[0] == DepthwiseChoice()
    assert generic_candidates(10_000, AVX512)[0] == GenericChoice()


def test_the_other_number_of_cores_is_tried_where_it_is_not_clear() -> None:
    def tried(work: int) -> list[bool | None]:
        return [choice.parallel for choice in generic_candidates(work, AVX512)]

    assert set(tried(100)) == {None}
    assert True in tried(100_000)
    assert False in tried(1_000_000)
    assert set(tried(1_000_000_000)) == {None}


def test_one_core_and_all_of_them() -> None:
    assert on_its_cores(AVX512, None) == AVX512
    assert on_its_cores(AVX512, False).cores == 1
    assert on_its_cores(AVX512, True).parallel_work == 0


@given(st.integers(1, 4), st.booleans())
def test_a_problem_is_read_as_it_was_written(groups: int, channels_first: bool) -> None:
    problem = Problem(
        (1, 8, 8, 12), (3, 3, 4, 16), groups, (1, 2), (0, 1, 2, 3), (1, 1), (1, 1), channels_first
    )

    assert read_problem(problem.text) == problem
    assert read_problem(problem.text).key == problem.key
