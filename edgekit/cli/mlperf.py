"""edgekit mlperf: run MLPerf's LoadGen with a device as the system under test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.measurer import beside, measurer_in_words
from edgekit.base.wording import counted, duration
from edgekit.cli.accuracy_options import data_options
from edgekit.cli.cluster_option import cluster_option
from edgekit.cli.console import Console
from edgekit.cli.device_options import device_options_with_timeout
from edgekit.cli.options import (
    BUNDLE_PATH,
    Command,
    board_option,
    grouped,
    json_option,
    pass_console,
)

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceKeywords
    from edgekit.verbs.mlperf.report import MlperfReport, Performance

_SCENARIOS = ("SingleStream", "Offline")
_MODES = ("performance", "accuracy")


def _keywords(mode: str | None, **given: Any) -> dict[str, Any]:
    return {**given, "modes": _MODES if mode is None else (mode,)}


_how_options = grouped(
    "how",
    _keywords,
    *data_options(required=True),
    click.option(
        "--scenario",
        type=click.Choice(_SCENARIOS),
        default=_SCENARIOS[0],
        show_default=True,
        help="One sample after another, or all at once.",
    ),
    click.option(
        "--mode", type=click.Choice(_MODES), help="Only this one of the two tests.  [default: both]"
    ),
    click.option(
        "--benchmark",
        default="edgekit",
        metavar="NAME",
        help="The MLPerf benchmark whose rules count, such as resnet50.  [default: those of all]",
    ),
    click.option(
        "--seconds",
        type=click.FloatRange(min=0.1),
        metavar="S",
        help="Least duration of the performance test.  [default: MLPerf's own, 600]",
    ),
    click.option(
        "--queries",
        type=click.IntRange(min=1),
        metavar="N",
        help="Least number of queries.  [default: MLPerf's own]",
    ),
    click.option(
        "--out",
        "-o",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="The folder for the logs.  [default: build/MODEL-mlperf]",
    ),
)


@click.command("mlperf", cls=Command)
@click.argument("target", type=BUNDLE_PATH, metavar="MODEL|BUNDLE")
@_how_options
@board_option
@cluster_option
@device_options_with_timeout
@json_option
@pass_console
def command(
    console: Console,
    target: Path,
    how: dict[str, Any],
    board_name: str | None,
    cluster: str | None,
    where: DeviceKeywords,
) -> None:
    """Run MLPerf's LoadGen with a device as the system under test.

    The logs are those that MLPerf's checker reads. A result that LoadGen calls invalid ends with
    exit code 15. A MODEL is built for --board first.
    """
    from edgekit.verbs.mlperf.report import raise_if_invalid

    ws = console.workspace.on_cluster(cluster)
    report = ws.mlperf(target, board=board_name, **how, **where)
    console.report(report, lambda: _render(console, report))
    raise_if_invalid(report)


def _render(console: Console, report: MlperfReport) -> None:
    console.heading(
        f"{report.bundle.name} on {report.device}: {report.scenario} by LoadGen {report.loadgen}"
    )
    console.fields(
        [
            ("measured by", measurer_in_words(report.measured_by)),
            *([] if report.performance is None else _speed(report, report.performance)),
            *((one.name, one.figure.in_words(one.value)) for one in report.accuracy),
            ("samples", counted(report.samples, "sample")),
        ]
    )
    for obstacle in report.obstacles:
        console.print(f"no submission: {obstacle}")
    for file in report.files:
        console.print(f"wrote {file}")


def _speed(report: MlperfReport, result: Performance) -> list[tuple[str, object]]:
    name = "90th percentile" if result.throughput is None else "throughput"
    verdict = "valid" if result.valid else "INVALID"
    return [
        (name, f"{report.speed_in_words(result)}, {verdict}"),
        ("on the device alone", f"median {beside(duration(result.seconds), report.measured_by)}"),
        ("queries", f"{result.queries:,}"),
    ]
