"""Takes a build's decisions about backends without building."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.leftovers import cost_in_words
from edgekit.backends.plan import OffloadPlan, selection_of
from edgekit.backends.report import PartitionReport, Timing, coverage_of, summarise_regions
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.own_backends import leftovers_backend
from edgekit.base.tvm_compat import load_tvm
from edgekit.base.wording import counted
from edgekit.building.request import BuildRequest
from edgekit.cross.sources import built_in_recipe, find_library
from edgekit.models.model import import_model

if TYPE_CHECKING:
    from edgekit.backends.base import Decision, Region
    from edgekit.backends.partition import Partition
    from edgekit.backends.picture import Box


@dataclass(frozen=True)
class Partitioned:
    report: PartitionReport
    regions: tuple[Region, ...]
    boxes: tuple[Box, ...]


def partition(request: BuildRequest, events: Events = SILENT) -> Partitioned:
    """Import the model and decide as a build does."""
    found = decide(request, events)
    from edgekit.backends.picture import boxes_of

    if not request.offload.backends:
        found = replace(found, decisions=tuple(map(_unasked, found.decisions)))
    regions = found.regions
    calls = Counter(c.claim.region.symbol for c in found.candidates if c.verdict.pays)
    summaries = summarise_regions(regions, calls, found.decisions, _timings(request.offload))
    report = PartitionReport(
        model=request.source.name,
        board=request.board.name,
        backends=request.offload.backends,
        coverage=coverage_of(found.decisions, summaries),
        regions=summaries,
        decisions=found.decisions,
        notes=(*_notes(request.offload, found.decisions), *_leftovers(request, regions)),
    )
    return Partitioned(report, regions, boxes_of(found))


def _unasked(decision: Decision) -> Decision:
    return replace(decision, reason="no backend was asked for")


def decide(request: BuildRequest, events: Events) -> Partition:
    with events.stage("load TVM"):
        load_tvm()
    from edgekit.backends.offloading import partition_model

    model = import_model(request.source, events)
    with events.stage("partition") as stage:
        found = partition_model(model, selection_of(request.offload))
        offloaded = sum(decision.backend is not None for decision in found.decisions)
        stage.result = f"{offloaded} of {counted(len(found.decisions), 'operator')} offloaded"
    return found


def _timings(plan: OffloadPlan) -> dict[str, Timing]:
    return {
        symbol: Timing(record.library_us, record.tvm_us, record.device, record.measured_by)
        for symbol, record in plan.measured.items()
    }


def _notes(plan: OffloadPlan, decisions: tuple[Decision, ...]) -> tuple[str, ...]:
    from edgekit.backends.partition import means

    return tuple(
        f"offload.never names {name!r}, which is no operator of this model and no node"
        for name in plan.never
        if not any(means(name, d.operator, d.node) for d in decisions)
    )


def _leftovers(request: BuildRequest, regions: tuple[Region, ...]) -> tuple[str, ...]:
    """Say what running what can't be compiled costs, without fetching the library."""
    backend = leftovers_backend(request.offload.backends)
    own = [region for region in regions if region.backend == backend]
    if not own:
        return ()
    library = find_library(built_in_recipe(backend), request.board, request.toolchain)
    operators = sum(len(region.operators) for region in own)
    content = sum(region.steps[0].layer.weights["model"].nbytes for region in own)
    files = sum(path.stat().st_size for path in library.run_time) if library else 0
    return (cost_in_words(backend, operators, content, files),)


def draw(found: Partitioned, svg: Path | None, html: Path | None) -> None:
    """Write the requested pictures."""
    if svg is None and html is None:
        return
    from edgekit.backends.drawing import draw_html, draw_svg

    picture = draw_svg(found.boxes, found.report.backends)
    for path, text in ((svg, picture), (html, draw_html(found.report, picture))):
        if path is not None:
            with storage_errors("write the picture", path):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, text)
