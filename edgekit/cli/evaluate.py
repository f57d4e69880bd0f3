"""edgekit evaluate: measure on a device how right a model is on a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.measurer import beside
from edgekit.base.wording import counted, duration
from edgekit.cli.accuracy_options import data_options, limit_options
from edgekit.cli.cluster_option import cluster_option
from edgekit.cli.console import Console
from edgekit.cli.device_options import device_options_with_timeout
from edgekit.cli.junit import junit_file, junit_option
from edgekit.cli.options import (
    BUNDLE_PATH,
    MODEL_FILE,
    Command,
    board_option,
    grouped,
    json_option,
    pass_console,
)
from edgekit.verbs.evaluation.report import (
    EvaluationReport,
    Limit,
    Metric,
    raise_if_missed,
)

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceKeywords


_how_options = grouped(
    "how",
    dict,
    *data_options(required=True),
    click.option(
        "--model",
        type=MODEL_FILE,
        metavar="MODEL",
        help="Run this model on the same samples in its own runtime, and compare.",
    ),
    *limit_options(),
    click.option("--again", is_flag=True, help="Forget what an interrupted evaluation left."),
)


@click.command("evaluate", cls=Command)
@click.argument("target", type=BUNDLE_PATH, metavar="MODEL|BUNDLE")
@_how_options
@board_option
@cluster_option
@device_options_with_timeout
@junit_option
@json_option
@pass_console
def command(
    console: Console,
    target: Path,
    how: dict[str, Any],
    board_name: str | None,
    cluster: str | None,
    where: DeviceKeywords,
    junit: Path | None,
) -> None:
    """Run a data set on a device, and say how right the outputs are.

    A MODEL is built for --board first. An interrupted evaluation goes on where it stopped. A figure
    that misses a limit ends with exit code 17. The figures are kept: `edgekit results list` shows
    them beside the time.
    """
    from edgekit.verbs.junit import cases_of_evaluation

    ws = console.workspace.on_cluster(cluster)
    with junit_file(junit, "evaluate", target.name) as cases:
        report = ws.evaluate(target, board=board_name, **how, **where)
        cases += cases_of_evaluation(report)
    console.report(report, lambda: _render(console, report))
    raise_if_missed(report)


def _render(console: Console, report: EvaluationReport) -> None:
    console.heading(
        f"{report.bundle.name} on {report.device}: {counted(report.samples, 'sample')}, "
        f"median {beside(duration(report.seconds), report.measured_by)}"
    )
    limits = {limit.metric: limit for limit in report.limits}
    console.table(
        ("figure", "name", "device", *(("model",) if report.model else ()), "limit"),
        [_row(metric, limits.get(metric.name), report) for metric in report.metrics],
        right=("device", "model"),
    )
    if report.model:
        console.print(f"model: {report.model}")
    if report.resumed:
        console.print(f"{counted(report.resumed, 'sample')} of an interrupted evaluation")


def _row(metric: Metric, limit: Limit | None, report: EvaluationReport) -> list[object]:
    words = metric.figure.in_words
    row: list[object] = [metric.figure.title, metric.name, words(metric.value)]
    if report.model:
        row.append(None if metric.model is None else words(metric.model))
    if limit is None:
        return [*row, None]
    verdict = "kept" if limit.keeps(metric.value) else "MISSED"
    return [*row, f"at {limit.side} {words(limit.bound)}: {verdict}"]
