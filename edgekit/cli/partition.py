"""edgekit partition: show which backend would run each part of a model, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.errors import UsageError
from edgekit.base.measurer import beside, measurer_in_words
from edgekit.base.wording import amount, counted, duration, percent, size
from edgekit.cli.build_options import to_be_built
from edgekit.cli.console import Console
from edgekit.cli.device_options import device_options_with_timeout
from edgekit.cli.options import Command, csv_option, grouped, json_option, pass_console

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceKeywords
    from edgekit.api.keywords import BuildKeywords
    from edgekit.backends.base import Decision
    from edgekit.backends.report import Coverage, PartitionReport, RegionSummary, Timing

_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class _Written:
    """The files to write."""

    svg: Path | None
    html: Path | None
    export: Path | None


@click.command("partition", cls=Command)
@to_be_built
@grouped(
    "measuring",
    dict,
    click.option(
        "--measure",
        is_flag=True,
        help="First time each region on a device both ways; later builds use the result.",
    ),
    click.option("--again", is_flag=True, help="Measure again what was measured before."),
)
@device_options_with_timeout
@grouped(
    "written",
    _Written,
    click.option("--svg", type=_FILE, metavar="FILE", help="Draw the graph, coloured by backend."),
    click.option(
        "--html", type=_FILE, metavar="FILE", help="Write the drawing as a page with every reason."
    ),
    click.option(
        "--export-json",
        "export",
        type=click.Path(path_type=Path),
        metavar="FILE|DIR",
        help="Write the regions' layers and weights for other tools.",
    ),
)
@csv_option
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    how: BuildKeywords,
    measuring: dict[str, bool],
    where: DeviceKeywords,
    written: _Written,
) -> None:
    """Show which library would run each operator of MODEL on a board, and why.

    Neighbouring operators that one library runs are a region. A region stays in TVM if TVM was
    measured to be faster, or if it is unmeasured and too small to pay for entering it. Nothing is
    built, except with --measure. With --twin, measurements on emulated boards count too.
    """
    from edgekit.backends.region_export import export_regions
    from edgekit.building.partition import draw

    if not measuring["measure"] and (where["device"] is not None or measuring["again"]):
        raise UsageError(
            "--device and --again are for --measure",
            hint="add --measure, or leave them out",
        )
    found = console.workspace.partitioned(model, **measuring, **how, **where)
    draw(found, written.svg, written.html)
    if written.export is not None:
        for path in export_regions(found.regions, written.export):
            console.events.note(f"wrote {path}")
    console.report(found.report, lambda: _render(console, found.report))


def _render(console: Console, report: PartitionReport) -> None:
    for note in report.notes:
        console.events.warn(note)
    alike: dict[tuple[str, str, str], list[Decision]] = {}
    for decision in report.decisions:
        key = (decision.operator, decision.backend or "TVM", decision.reason)
        alike.setdefault(key, []).append(decision)
    reasons = ["", *(why for _, _, why in alike)]
    console.table(
        ("operator", "times", "MACs", "runs on", "why"),
        [
            (
                *(operator, len(group), _macs(sum(decision.macs for decision in group)), place),
                "as above" if why == before else why,
            )
            for before, ((operator, place, why), group) in zip(reasons, alike.items(), strict=False)
        ],
        right=("times", "MACs"),
    )
    console.csv(
        ("operator", "node", "MACs", "runs on", "why"),
        [
            (d.operator, d.node or None, d.macs, d.backend or "TVM", d.reason)
            for d in report.decisions
        ],
    )
    if report.regions:
        console.print()
        console.heading("regions")
        console.table(
            ("region", "layers", "MACs", "in", "out", "bytes", "library", "TVM"),
            [_row(region) for region in report.regions],
            right=("layers", "MACs", "in", "out", "bytes", "library", "TVM"),
            spare=("out", "in", "bytes"),
        )
    console.print()
    console.fields(_facts(report.coverage, report.backends))


def _macs(count: int) -> str | None:
    return amount(count) if count else None


def _row(region: RegionSummary) -> tuple[object, ...]:
    times = region.timing
    return (
        region.symbol if region.calls == 1 else f"{region.symbol} ×{region.calls}",
        region.layers,
        amount(region.macs),
        len(region.inputs),
        len(region.outputs),
        size(region.boundary_bytes),
        _time(times, times.library_us) if times else None,
        _time(times, times.tvm_us) if times else None,
    )


def _facts(coverage: Coverage, backends: tuple[str, ...]) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("backends", ", ".join(backends) or "none: TVM compiles everything"),
        (
            "operators",
            f"{coverage.operators_offloaded} of {coverage.operators} offloaded, "
            f"{percent(coverage.operators_share)}",
        ),
        (
            "multiply-accumulates",
            f"{amount(coverage.macs_offloaded)} of {amount(coverage.macs)}, "
            f"{percent(coverage.macs_share)}"
            if coverage.macs
            else "none in this model",
        ),
        ("regions", coverage.regions),
        (
            "boundary crossings",
            f"{counted(coverage.crossings, 'tensor')}, {size(coverage.crossing_bytes)}",
        ),
    ]
    if coverage.library_us is not None:
        library, tvm = _time(coverage, coverage.library_us), _time(coverage, coverage.tvm_us)
        times = f"the regions take {library}; compiled by TVM {tvm}"
        facts += [("measured", times), ("by", measurer_in_words(coverage.measured_by))]
    return facts


def _time(of: Timing | Coverage, microseconds: float | None) -> str | None:
    if microseconds is None:
        return None
    return beside(duration(microseconds / 1e6), of.measured_by)
