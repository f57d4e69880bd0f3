"""Which ways of a model's steps share a firmware."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgekit.aot.ways import StepWays, Way
from edgekit.tuning.rounds import Candidate, candidates_of, halves, rounds

OWN = Way("edgekit")
WAYS = [Way("edgekit dsp"), Way("edgekit dsp", "tile 2"), Way("tvm", "registers 8")]

steps = st.lists(
    st.builds(
        lambda key, others: StepWays(f"step {key}", key, key, OWN, tuple(others)),
        st.sampled_from("abcde"),
        st.lists(st.sampled_from(WAYS), unique=True),
    ),
    max_size=8,
)


@given(steps)
def test_every_way_of_every_kind_of_step_is_tried_once(found: list[StepWays]) -> None:
    tried = [item for round_ in rounds(candidates_of(found, {})) for item in round_.items()]
    assert len(tried) == len(set(tried))
    assert set(tried) == {(step.key, way) for step in found for way in step.others}


@given(steps)
def test_there_are_as_many_firmwares_as_the_richest_step_has_ways(found: list[StepWays]) -> None:
    ways: dict[str, set[Way]] = {}
    for step in found:
        ways.setdefault(step.key, set()).update(step.others)
    most = max(map(len, ways.values()), default=0)
    assert len(list(rounds(candidates_of(found, {})))) == most


def test_what_was_counted_before_is_left_out() -> None:
    step = StepWays("conv", "a", "conv", OWN, tuple(WAYS))
    left = candidates_of([step], {"a": frozenset(WAYS[:2]), "b": frozenset(WAYS)})
    assert left == [Candidate("a", WAYS[2])]


@given(st.dictionaries(st.sampled_from("abcdefg"), st.sampled_from(WAYS), min_size=2))
def test_halves_are_a_whole_and_neither_is_empty(assignment: dict[str, Way]) -> None:
    first, second = halves(assignment)
    assert first
    assert second
    assert {**first, **second} == assignment
    assert len(first) + len(second) == len(assignment)
