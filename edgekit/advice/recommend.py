"""Recommends how to run a model on a board: support, measurements, what to try first.

It answers in this order: can it be built, does it fit, which libraries take how much of it and why
not more, what was measured, what has to be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgekit.advice.summary import ModelSummary
from edgekit.advice.words import Advice, Considered, HotSpot, Recommendation, SearchPlan, Subject
from edgekit.base.events import SILENT, Events
from edgekit.devices.device import Device
from edgekit.models.model import ModelSource
from edgekit.profiles.board import Board, board_names
from edgekit.project.workspace import WorkspaceData


@dataclass(frozen=True)
class Measuring:
    """How to measure every option on a device of its board."""

    reach: Callable[[Board, Events], Device]
    search: SearchPlan | None = None
    """The search for faster kernels before measuring; None uses known kernels."""


def recommend(
    workspace: WorkspaceData,
    source: ModelSource,
    boards: Sequence[str | Board],
    *,
    measuring: Measuring | None = None,
    events: Events = SILENT,
) -> Recommendation:
    """Return advice for these boards, or for all. With `measuring`, measure every supported option
    on the boards' devices first, all boards at the same time."""
    from edgekit.advice.best_runs import with_best_runs
    from edgekit.advice.options import hot_spot_of
    from edgekit.advice.summary import summarise

    summary = summarise(source, events)
    if summary.obstacle is not None:
        return _recommendation(summary, summary.obstacle.message, None, ())
    from edgekit.models.model import import_model

    subject = Subject(source, import_model(source, SILENT), summary, workspace.store)
    names = boards or board_names(workspace.folder)
    seen = [_considered(subject, workspace.board(name), events) for name in names]
    if measuring is not None:
        seen = _measured(workspace, source, seen, measuring, events)
    known = [Considered(one.board, with_best_runs(source, one, workspace.store)) for one in seen]
    return _recommendation(summary, None, hot_spot_of(subject), _advices(subject, known))


def _considered(subject: Subject, board: Board, events: Events) -> Considered:
    from edgekit.advice.options import options_of

    with events.stage(f"consider {board.name}") as stage:
        options = options_of(subject, board)
        stage.result = f"{sum(option.supported for option in options)} options"
    return Considered(board, options)


def _measured(
    workspace: WorkspaceData,
    source: ModelSource,
    seen: Sequence[Considered],
    measuring: Measuring,
    events: Events,
) -> list[Considered]:
    """Measure on each board; one of several without an available device keeps its options."""
    from edgekit.advice.trying import Trials, measured
    from edgekit.devices.choice import Candidate
    from edgekit.verbs.fleet import on_each

    if len(seen) == 1:
        device = measuring.reach(seen[0].board, events)
        return [measured(Trials(workspace, source, device, measuring.search, events), seen[0])]
    of_device: dict[int, Considered] = {}

    def candidate(one: Considered) -> Candidate:
        def reached(voice: Events) -> Device:
            device = measuring.reach(one.board, voice)
            of_device[id(device)] = one
            return device

        return Candidate(one.board.name, reached)

    def work(device: Device, voice: Events) -> Considered:
        trials = Trials(workspace, source, device, measuring.search, voice)
        return measured(trials, of_device[id(device)])

    outcomes = on_each([candidate(one) for one in seen], work, events)
    return [outcome.report or one for one, outcome in zip(seen, outcomes, strict=True)]


def _advices(subject: Subject, known: Sequence[Considered]) -> tuple[Advice, ...]:
    from edgekit.advice.memory import fit_of, needs_of
    from edgekit.advice.verdict import advice_of
    from edgekit.building.products import product_of

    # The same for all boards with one product: their kernels need about the same memory.
    boards = {product_of(one.board): one.board for one in reversed(known)}
    needs = {product: needs_of(subject, product, board) for product, board in boards.items()}
    return tuple(advice_of(one, fit_of(one.board, needs[product_of(one.board)])) for one in known)


def _recommendation(
    summary: ModelSummary,
    obstacle: str | None,
    hot_spot: HotSpot | None,
    advices: tuple[Advice, ...],
) -> Recommendation:
    return Recommendation(
        summary.name,
        summary.sha256,
        None if summary.cost is None else summary.cost.macs,
        summary.parameter_bytes,
        hot_spot,
        obstacle,
        advices,
    )
