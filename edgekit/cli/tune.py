"""edgekit tune: search for faster kernels on devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.measurer import figure
from edgekit.base.wording import amount, duration, microseconds, multiple
from edgekit.cli.build_options import to_be_built
from edgekit.cli.cluster_option import cluster_option
from edgekit.cli.console import Console
from edgekit.cli.device_options import tuning_device_options
from edgekit.cli.options import Command, csv_option, grouped, json_option, pass_console
from edgekit.cli.tune_options import Time

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceChoice
    from edgekit.api.keywords import BuildKeywords
    from edgekit.building.request import BuildRequest
    from edgekit.tuning.kernel_states import KernelOutcome
    from edgekit.tuning.step_proposer import TunedStep
    from edgekit.tuning.tune import TuneReport
    from edgekit.tuning.tune_c import TunedInC

_COLUMNS = ("calls", "by its rule", "now", "gain", "trials", "failed", "how", "kernel")
_NUMBERS = ("calls", "by its rule", "now", "gain", "trials", "failed")
_STEP_COLUMNS = ("steps", "its own", "best", "gain", "how", "step")
_STEP_NUMBERS = ("steps", "its own", "best", "gain")
_DEFAULT_TRIALS = 1000


@click.command("tune", cls=Command)
@to_be_built
@grouped(
    "effort",
    dict,
    click.option(
        "--trials",
        type=click.IntRange(1, 1_000_000),
        metavar="N",
        help="Candidates for the whole model, including those of earlier searches.  "
        f"[default: {_DEFAULT_TRIALS}, or as many as fit in --time]",
    ),
    click.option(
        "--time",
        "seconds",
        type=Time(),
        metavar="TIME",
        help="Duration of the search (90s, 30m, 8h).",
    ),
    click.option("--again", is_flag=True, help="Measure again what was measured before."),
    click.option(
        "--seed", type=click.IntRange(0, 2**31 - 2), default=0, help="Seed of the random choices."
    ),
)
@cluster_option
@tuning_device_options
@csv_option
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    how: BuildKeywords,
    effort: dict[str, Any],
    cluster: str | None,
    where: DeviceChoice,
) -> None:
    """Search on devices for the fastest variant of each kernel of MODEL. Later builds use them.

    Ctrl-C keeps what was measured, and the same command resumes the search.
    """
    from edgekit.tuning.tune_c import TunedInC

    ws = console.workspace.on_cluster(cluster)
    request = ws.request(model, **how)
    report = ws.search(request, where, **effort)
    if isinstance(report, TunedInC):
        console.report(report, lambda: _render_steps(console, request, report))
    else:
        console.report(report, lambda: _render(console, report))


def _render(console: Console, report: TuneReport) -> None:
    console.heading(f"{report.model} on {', '.join(report.devices)}, {duration(report.seconds)}")
    errors = ", ".join(f"{count} {kind}" for kind, count in sorted(report.errors.items()))
    pairs = [
        ("trials", f"{report.trials}, and {report.known} known from earlier searches"),
        ("failed", errors or "none"),
        ("ended by", report.ended),
    ]
    if report.best_us:
        own, best = (
            figure(us / 1e6, "seconds", report.measured_by)
            for us in (report.own_us, report.best_us)
        )
        gain = report.own_us / report.best_us
        pairs.append(("all kernels", f"{own} by the rules, {best} now: {multiple(gain)}"))
    used_on = report.board if report.measured_by == "hardware" else f"a twin of {report.board}"
    pairs.append(("used by", f"every build for {used_on}, without an option"))
    console.fields(pairs)
    console.listing(
        _COLUMNS,
        [_row(kernel) for kernel in report.kernels],
        right=_NUMBERS,
        spare=("failed", "calls", "trials"),
    )


def _row(kernel: KernelOutcome) -> tuple[object, ...]:
    better = kernel.choice is not None
    return (
        str(kernel.calls),
        microseconds(kernel.own_us),
        microseconds(kernel.best_us) if better else None,
        multiple(kernel.gain) if better else None,
        str(kernel.trials),
        str(kernel.failed),
        kernel.choice.words if kernel.choice is not None else "its rule",
        kernel.words,
    )


def _render_steps(console: Console, request: BuildRequest, report: TunedInC) -> None:
    """Print what a search for the fastest C of each step found."""
    console.heading(f"{request.source.name} on {request.board.name}, {duration(report.seconds)}")
    failed = f", {report.failed} of them failed" if report.failed else ""
    pairs = [
        ("counted", f"{report.measured} ways{failed}; {report.known} known from earlier"),
        ("used by", f"every build for a {request.board.cpu.name}, without an option"),
    ]
    if report.best_us:
        own, best = (_shown(report, us) for us in (report.own_us, report.best_us))
        gain = report.own_us / report.best_us
        pairs.insert(1, ("an inference", f"{own} as it was, {best} now: {multiple(gain)}"))
    console.fields(pairs)
    rows = [_step_row(report, step) for step in report.steps]
    console.listing(_STEP_COLUMNS, rows, right=_STEP_NUMBERS)


def _step_row(report: TunedInC, step: TunedStep) -> tuple[str, ...]:
    is_own = step.best == step.own
    return (
        str(step.steps),
        _shown(report, step.own_us),
        "" if is_own else _shown(report, step.best_us),
        "" if is_own else multiple(step.own_us / step.best_us),
        step.own.words if is_own else step.best.words,
        step.words,
    )


def _shown(report: TunedInC, us: float) -> str:
    """Format a time, or a count of instructions."""
    if report.unit == "instructions":
        return f"{amount(round(us * 1e3))} instructions"
    return figure(us / 1e6, "seconds", report.measured_by)
