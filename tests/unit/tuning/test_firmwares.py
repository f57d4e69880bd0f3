"""Which ways of a model's steps share a firmware."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgekit.aot.ways import StepWays, Way, way_from_json
from edgekit.tuning.step_proposer import Firmware, StepProposer, candidates_of, firmwares, halves

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
    tried = [item for ways in firmwares(candidates_of(found, {})) for item in ways.items()]
    assert len(tried) == len(set(tried))
    assert set(tried) == {(step.key, way) for step in found for way in step.others}


@given(steps)
def test_there_are_as_many_firmwares_as_the_richest_step_has_ways(found: list[StepWays]) -> None:
    ways: dict[str, set[Way]] = {}
    for step in found:
        ways.setdefault(step.key, set()).update(step.others)
    most = max(map(len, ways.values()), default=0)
    assert len(list(firmwares(candidates_of(found, {})))) == most


def test_what_was_counted_before_is_left_out() -> None:
    step = StepWays("conv", "a", "conv", OWN, tuple(WAYS))
    left = candidates_of([step], {"a": frozenset(WAYS[:2]), "b": frozenset(WAYS)})
    assert left == [("a", WAYS[2])]


@given(st.dictionaries(st.sampled_from("abcdefg"), st.sampled_from(WAYS), min_size=2))
def test_halves_are_a_whole_and_neither_is_empty(assignment: dict[str, Way]) -> None:
    first, second = halves(assignment)
    assert first
    assert second
    assert {**first, **second} == assignment
    assert len(first) + len(second) == len(assignment)


@given(steps, st.data())
def test_ways_that_fail_are_found_and_all_others_are_counted(
    found: list[StepWays], data: st.DataObject
) -> None:
    tried = {(step.key, way) for step in found for way in step.others}
    wrong = data.draw(st.sets(st.sampled_from(sorted(tried, key=str))) if tried else st.just(set()))
    proposer = StepProposer(found, (), "{}", None)

    proposer.learn(Firmware({}, "chip", {step.key: 4.0 for step in found}))
    results = []
    while (firmware := proposer.next()) is not None:
        firmware.device, firmware.own_us = "chip", {step.key: 4.0 for step in found}
        if wrong & set(firmware.ways.items()):
            firmware.error = "numbers"
        else:
            firmware.step_us = dict.fromkeys(firmware.ways, 2.0)
        results += proposer.learn(firmware)

    errors = {(r.workload.key, way_from_json(r.choice)): r.error for r in results}
    assert len(results) == len(tried)
    assert errors == {item: "numbers" if item in wrong else None for item in tried}
    assert proposer.failed == len(wrong)


def test_a_firmware_that_a_lost_device_had_goes_to_another() -> None:
    proposer = StepProposer([StepWays("conv", "a", "conv", OWN, tuple(WAYS))], (), "{}", 2)
    first = proposer.next()
    assert first is not None
    proposer.drop(first)
    assert proposer.next() is first
    assert proposer.next() is not None
    assert proposer.next() is None, "two ways are the limit"
