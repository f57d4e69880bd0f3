"""Which kernel a search turns to, when it lets one be, and what it makes of earlier searches."""

from __future__ import annotations

from dataclasses import replace

from edgekit.base.tensors import TensorSpec
from edgekit.compiler.schedules.choices import (
    Choice,
    GenericChoice,
    ProductChoice,
    TraceChoice,
    choice_as_json,
)
from edgekit.store.tuning_runs import TuningRecord, Workload
from edgekit.tuning.batches import Result
from edgekit.tuning.kernel_states import KernelState, next_kernel, outcomes, totals
from edgekit.tuning.messages import Subject, Task
from edgekit.tuning.parameters import neighbours

SPEC = TensorSpec("x", "float32", (8,))


def a_task(key: str, *, calls: int = 1, problem: str | None = None) -> Task:
    subject = Subject(key, key, "", "", (SPEC,), SPEC)
    return Task(subject, calls, 1000, 2000, GenericChoice(), (), True, problem)


def state_of(key: str, own_us: float, *, calls: int = 1) -> KernelState:
    found = KernelState(a_task(key, calls=calls))
    found.measured(own_us, ())
    return found


def candidates(*ratios: float | None) -> list[Result]:
    return [Result(GenericChoice(lanes=place + 1), ratio) for place, ratio in enumerate(ratios)]


def a_record(choice: Choice, best_us: float | None, own_us: float | None) -> TuningRecord:
    return TuningRecord(
        id="0" * 32,
        workload=Workload("k", "{}", 1, "k"),
        session=None,
        device="desk",
        measured_at="2026-01-01T00:00:00.000000Z",
        choice=choice_as_json(choice),
        best_us=best_us,
        own_us=own_us,
        error=None if best_us is not None else "run",
    )


def test_the_kernel_that_takes_most_of_the_models_time_comes_first() -> None:
    small, large = state_of("small", 10.0), state_of("large", 100.0)

    assert next_kernel([small, large]) is large


def test_a_small_kernel_that_runs_often_is_a_large_one() -> None:
    often, large = state_of("often", 10.0, calls=50), state_of("large", 100.0)

    assert next_kernel([often, large]) is often


def test_a_kernel_that_gains_nothing_lets_others_have_their_turn() -> None:
    first, second = state_of("first", 100.0), state_of("second", 60.0)
    first.measured(100.0, candidates(*[1.0] * 32))

    assert next_kernel([first, second]) is second


def test_a_kernel_that_keeps_gaining_is_gone_on_with() -> None:
    first, second = state_of("first", 100.0), state_of("second", 60.0)
    first.measured(100.0, candidates(0.5, *[1.0] * 31))

    assert next_kernel([first, second]) is first


def test_trials_under_way_count_as_if_they_gained_nothing() -> None:
    first, second = state_of("first", 100.0), state_of("second", 60.0)
    first.under_way = 32

    assert next_kernel([first, second]) is second


def test_a_kernel_is_let_be_after_many_trials_without_anything_better() -> None:
    only = state_of("only", 100.0)
    only.measured(100.0, candidates(0.9, *[1.0] * 15))
    assert not only.finished

    for _ in range(4):
        only.measured(100.0, candidates(*[1.0] * 16))

    assert only.finished
    assert next_kernel([only]) is None


def test_what_is_hardly_faster_than_the_rules_own_changes_nothing() -> None:
    found = state_of("k", 100.0)

    found.measured(100.0, candidates(0.98))

    assert found.best is None
    assert found.best_us == 100.0


def test_times_of_another_device_count_relative_to_the_rules_own_there() -> None:
    found = state_of("k", 100.0)

    found.measured(20.0, candidates(0.8))

    assert found.best_us == 80.0


def test_what_failed_is_never_the_best_and_never_tried_again() -> None:
    found = state_of("k", 100.0)

    found.measured(100.0, candidates(None, float("nan"), 0.9))

    assert found.best == GenericChoice(lanes=3)
    assert GenericChoice(lanes=1) in found.tried()


def test_an_earlier_search_leaves_its_best_its_trials_and_its_failures() -> None:
    found = KernelState(a_task("k"))
    known = [
        a_record(GenericChoice(), 100.0, 100.0),
        a_record(GenericChoice(lanes=4), 80.0, 100.0),
        a_record(GenericChoice(lanes=8), None, None),
    ]

    assert found.remember(known) == 2

    assert found.own_us == 100.0
    assert found.best == GenericChoice(lanes=4)
    assert found.trials == 2
    assert found.new_trials == 0
    assert found.tried() == {GenericChoice(lanes=4), GenericChoice(lanes=8)}


def test_what_another_tool_measured_is_worth_a_trial_and_proves_nothing() -> None:
    found = KernelState(a_task("k"))

    assert found.remember([a_record(GenericChoice(lanes=4), 1.0, None)]) == 0

    assert found.best is None
    assert found.suggested == [GenericChoice(lanes=4)]
    assert not found.tried()


def test_a_record_that_this_edgekit_cannot_read_is_passed_over() -> None:
    found = KernelState(a_task("k"))
    strange = replace(a_record(GenericChoice(lanes=4), 80.0, 100.0), choice={"family": "warp"})

    assert found.remember([strange]) == 0


def test_a_product_counts_once_with_the_better_of_its_two_searches() -> None:
    parameters = KernelState(replace(a_task("p"), own=ProductChoice()))
    parameters.measured(100.0, [Result(ProductChoice(unrolled=8), 0.9)])
    exact = KernelState(replace(a_task("p/1", calls=3, problem="p"), own=TraceChoice()))
    exact.measured(110.0, [Result(TraceChoice("[[],[]]"), 0.8)])

    (found,) = outcomes({"p": parameters, "p/1": exact})

    assert found.choice == TraceChoice("[[],[]]")
    assert totals([found]) == (330.0, 330.0 * 0.8)


def test_choices_near_the_best_are_all_different_and_none_is_the_best_itself() -> None:
    best = ProductChoice(unrolled=8)

    found = list(neighbours([best], [ProductChoice(panels_outside=True)], seed=0))

    assert len(found) == len(set(found)) > 20
    assert best not in found
    assert found == list(neighbours([best], [ProductChoice(panels_outside=True)], seed=0))
