"""What is tried next of a model's kernels, and what is recorded of it."""

from __future__ import annotations

from pathlib import Path

from edgekit.base.events import SILENT
from edgekit.base.tensors import TensorSpec
from edgekit.compiler.schedules.choices import Choice, ProductChoice, choice_as_json
from edgekit.tuning.batches import Batch
from edgekit.tuning.kernel_proposer import KernelProposer
from edgekit.tuning.messages import Subject, Task, Timed

SPEC = TensorSpec("x", "float32", (8,))
LIKELY = (ProductChoice(unrolled=2), ProductChoice(lines_at_once=4), ProductChoice(unrolled=8))


def a_proposer(folder: Path, trial_budget: int | None = None) -> KernelProposer:
    subject = Subject("k", "k", "", "", (SPEC,), SPEC)
    task = Task(subject, 1, 1000, 2000, ProductChoice(), LIKELY, traced=False)
    return KernelProposer(
        [task], None, folder, trial_budget, lambda device: (device or "desk", "{}"), SILENT
    )


def measured(batch: Batch, times: dict[Choice, float]) -> Batch:
    batch.device, batch.own_us = "desk", 10.0
    for place, choice in enumerate(batch.choices):
        us = times.get(choice)
        batch.timed[place] = Timed(place, us, None if us else "run")
    return batch


def test_the_likely_ones_are_followed_by_their_combination_and_then_by_nothing(
    tmp_path: Path,
) -> None:
    proposer = a_proposer(tmp_path)
    survey = proposer.next()
    assert survey is not None
    assert survey.choices == ()
    assert proposer.next() is None, "its time decides the order of all else"
    (own,) = proposer.learn(measured(survey, {}))
    assert (own.choice, own.best_us, own.own_us) == (choice_as_json(ProductChoice()), 10.0, 10.0)

    likely = proposer.next()
    assert likely is not None
    assert likely.choices == LIKELY
    assert proposer.next() is None, "its results may suggest more"
    found = proposer.learn(measured(likely, {LIKELY[0]: 8.0, LIKELY[1]: 9.0}))
    assert [(one.best_us, one.error) for one in found] == [(8.0, None), (9.0, None), (None, "run")]

    both = proposer.next()
    assert both is not None
    assert both.choices == (ProductChoice(unrolled=2, lines_at_once=4),)
    proposer.learn(measured(both, {both.choices[0]: 7.0}))
    assert proposer.next() is None
    assert proposer.progress.trials == 4
    assert proposer.progress.failed == 1
    assert (proposer.progress.own_us, proposer.progress.best_us) == (10.0, 7.0)


def test_a_batch_that_was_not_measured_is_proposed_again(tmp_path: Path) -> None:
    proposer = a_proposer(tmp_path)
    survey = proposer.next()
    assert survey is not None
    proposer.learn(measured(survey, {}))
    first = proposer.next()
    assert first is not None

    proposer.drop(first)

    second = proposer.next()
    assert second is not None
    assert second.choices == first.choices


def test_no_more_candidates_than_the_limit_allows(tmp_path: Path) -> None:
    proposer = a_proposer(tmp_path, trial_budget=2)
    survey = proposer.next()
    assert survey is not None
    proposer.learn(measured(survey, {}))

    batch = proposer.next()

    assert batch is not None
    assert batch.choices == LIKELY[:2]
    proposer.learn(measured(batch, {}))
    assert proposer.next() is None
