"""Traces come from files and databases: what is no schedule of a CPU goes no further."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.schedules.choices import TraceChoice, choice_as_json, choice_from_json
from edgekit.compiler.schedules.trace_text import LONGEST_TRACE, check_trace

GET = ["GetSBlock", [], ["T_relu", "main"], ["b0"]]
LOOPS = ["GetLoops", ["b0"], [], ["l1", "l2"]]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def trace(*instructions: object, decisions: tuple[object, ...] = ()) -> str:
    return json.dumps([list(instructions), list(decisions)])


def test_a_schedule_passes() -> None:
    check_trace(
        trace(
            GET,
            LOOPS,
            ["Annotate", ["b0", 16], ["meta_schedule.vectorize"], []],
            ["SamplePerfectTile", ["l1"], [2, 64], ["v1", "v2"]],
            decisions=([3, [2, 4]],),
        )
    )


@pytest.mark.parametrize(
    "instruction",
    [
        ["Annotate", ["b0", "define i32 @f()"], ["pragma_import_llvm"], []],
        ["Annotate", ["b0", "int f();"], ["pragma_import_c"], []],
        ["Tensorize", ["b0"], ["somebody's", True], []],
        ["Bind", ["l1"], ["threadIdx.x"], []],
        ["UnsafeSetDType", ["b0"], [0, "int8"], []],
        ["NoSuchThing", [], [], []],
        ["GetLoops", "b0", [], []],
        ["GetLoops", ["b0"]],
        "GetLoops",
    ],
)
def test_an_instruction_that_could_do_harm_does_not_pass(instruction: object) -> None:
    with pytest.raises(ValueError):
        check_trace(trace(GET, instruction))


@pytest.mark.parametrize(
    "decision", [[5, [1]], [-1, [1]], [True, [1]], ["0", [1]], [0], 0], ids=str
)
def test_a_decision_is_about_an_instruction_that_is_there(decision: object) -> None:
    with pytest.raises(ValueError):
        check_trace(trace(GET, decisions=(decision,)))


def test_a_trace_that_is_too_long_or_too_deep_does_not_pass() -> None:
    with pytest.raises(ValueError):
        check_trace(trace(["GetSBlock", [], ["x" * LONGEST_TRACE], ["b0"]]))
    with pytest.raises(ValueError):
        check_trace("[[" + "[" * 100_000 + "]" * 100_000 + "],[]]")


@given(JSON)
def test_whatever_else_is_in_a_file_is_refused_as_such(document: object) -> None:
    if document == [[], []]:
        return
    with pytest.raises(ValueError):
        check_trace(json.dumps(document))


def test_a_trace_that_is_written_is_read_again_and_a_harmful_one_is_not() -> None:
    choice = TraceChoice(trace(GET, LOOPS))
    assert choice_from_json(choice_as_json(choice)) == choice

    with pytest.raises(ValueError):
        choice_from_json({"family": "trace", "trace": trace(["Tensorize", [], [], []])})
    with pytest.raises(ValueError):
        choice_from_json({"family": "trace", "trace": 7})
