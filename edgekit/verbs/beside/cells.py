"""Rows of a matrix for runtimes of others, and the ratios of all rows of a board."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from edgekit.base.errors import EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.device import Device
from edgekit.models.model import ModelSource
from edgekit.verbs.bench import percentile
from edgekit.verbs.beside.contender import (
    BundleContender,
    Contender,
    RuntimeContender,
    started,
)
from edgekit.verbs.beside.rounds import Rounds, alternating
from edgekit.verbs.beside.runtimes import Given
from edgekit.verbs.matrix_report import Cell, unmeasured

BESIDE = "beside "


def beside_cells(
    source: ModelSource,
    rows: Mapping[Cell, Bundle],
    runtimes: Sequence[str],
    device: Device,
    plan: BenchPlan,
    events: Events = SILENT,
) -> Iterator[Cell]:
    """Time bundles and runtimes in alternating rounds; yield the cells of all of them.

    `rows` are the finished cells of one board with their bundles, the one that ratios are of first.
    """
    board = next(iter(rows)).board
    with ExitStack() as closing:
        scratch = closing.enter_context(scratch_directory(cache_dir()))
        contenders: dict[str, Contender] = {}
        bundle = next(iter(rows.values()))
        threads = _threads(bundle, device, plan, events)
        for cell, built in rows.items():
            session = closing.enter_context(device.opened(built, purpose="matrix"))
            inputs = built.reference_inputs()
            contenders[cell.offload] = BundleContender(session, inputs, threads)
        for name in runtimes:
            given = _given(source, bundle, threads, scratch / name)
            try:
                contenders[BESIDE + name] = closing.enter_context(started(name, given))
            except EdgekitError as error:
                events.warn(error.message)
                yield unmeasured(board, BESIDE + name, "failed", error.message)
        rounds = alternating(contenders, plan.seconds, events)
    cells = {cell.offload: cell for cell in rows}
    base = next(iter(rows)).offload
    for name in contenders:
        if name in rounds.errors:
            yield unmeasured(board, name, "failed", rounds.errors[name].message)
            continue
        contender = contenders[name]
        cell = (
            _cell(next(iter(rows)), name, contender, rounds)
            if isinstance(contender, RuntimeContender)
            else cells[name]
        )
        if base in rounds.turns:
            ratio = rounds.ratio(name, base)
            cell = replace(
                cell, ratio=ratio.median, ratio_low=ratio.lowest, ratio_high=ratio.highest
            )
        yield cell


def _threads(bundle: Bundle, device: Device, plan: BenchPlan, events: Events) -> int:
    """Return the threads that the bundle computes with, which the runtimes get too."""
    with device.opened(bundle, purpose="matrix", events=events) as session:
        once = BenchPlan(warmup=0, runs=1, seconds=0.0, threads=plan.threads)
        return session.bench(bundle.reference_inputs(), once).threads


def _given(source: ModelSource, bundle: Bundle, threads: int, scratch: Path) -> Given:
    scratch.mkdir()
    outputs = bundle.reference_outputs()
    return Given(source.path.absolute(), bundle.reference_inputs(), outputs, threads, scratch)


def _cell(like: Cell, name: str, contender: RuntimeContender, rounds: Rounds) -> Cell:
    """Return the cell of a runtime; `like` is a cell of the same board."""
    turns = rounds.turns[name]
    seconds = sorted(value / 1e9 for turn in turns for value in turn.nanoseconds)
    watts = [turn.watts for turn in turns if turn.watts is not None]
    power = statistics.median(watts) if watts else None
    return replace(
        like,
        offload=name,
        digest=None,
        median=percentile(seconds, 50),
        p90=percentile(seconds, 90),
        minimum=seconds[0],
        runs=len(seconds),
        memory=contender.memory,
        watts=power,
        joules=None if power is None else power * statistics.fmean(seconds),
        max_error=contender.max_error,
        accuracy=(),
        offloaded=contender.title,
        search_seconds=None,
        search_joules=None,
    )
