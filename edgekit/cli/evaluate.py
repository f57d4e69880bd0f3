"""edgekit evaluate: measure on a device how right a model is on a data set."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from edgekit.base.errors import UsageError
from edgekit.base.measurer import beside
from edgekit.base.wording import counted, duration
from edgekit.cli.cluster_option import cluster_option
from edgekit.cli.console import Console
from edgekit.cli.device_options import device_options_with_timeout
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
    TaskName,
    raise_if_missed,
)

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceKeywords


def _bounds(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float]:
    """Parse `top1=0.70`."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, bound = text.partition("=")
        try:
            value = float(bound)
        except ValueError:
            value = math.nan
        if not name or not math.isfinite(value) or name in found:
            raise UsageError(
                f"{parameter.opts[0]} {text} is no limit of its own",
                hint=f"write {parameter.opts[0]} NAME=NUMBER, once for each figure",
            )
        found[name] = value
    return found


_how_options = grouped(
    "how",
    dict,
    click.option(
        "--data",
        type=click.Path(path_type=Path),
        required=True,
        metavar="DIR",
        help="The data set with its labels.",
    ),
    click.option(
        "--task",
        type=click.Choice(get_args(TaskName)),
        required=True,
        help="What the model does, which decides the data's layout and the figures.",
    ),
    click.option(
        "--model",
        type=MODEL_FILE,
        metavar="MODEL",
        help="Run this model on the same samples in its own runtime, and compare.",
    ),
    click.option(
        "--at-least",
        multiple=True,
        metavar="NAME=X",
        callback=_bounds,
        help="Fail if this figure is smaller, such as top1=0.70. May be repeated.",
    ),
    click.option(
        "--at-most",
        multiple=True,
        metavar="NAME=X",
        callback=_bounds,
        help="Fail if this figure is larger. May be repeated.",
    ),
    click.option("--again", is_flag=True, help="Forget what an interrupted evaluation left."),
)


@click.command("evaluate", cls=Command)
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
    """Run a data set on a device, and say how right the outputs are.

    A MODEL is built for --board first. An interrupted evaluation goes on where it stopped. A figure
    that misses a limit ends with exit code 17.
    """
    ws = console.workspace.on_cluster(cluster)
    report = ws.evaluate(target, board=board_name, **how, **where)
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
