"""edgekit tune for microcontrollers: search for the fastest C of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.base.measurer import figure
from edgekit.base.wording import amount, duration, multiple
from edgekit.cli.console import Console

if TYPE_CHECKING:
    from edgekit.building.request import BuildRequest
    from edgekit.tuning.step_proposer import TunedStep
    from edgekit.tuning.tune_c import TunedInC

_COLUMNS = ("steps", "its own", "best", "gain", "how", "step")
_NUMBERS = ("steps", "its own", "best", "gain")


def render_steps(console: Console, request: BuildRequest, report: TunedInC) -> None:
    """Print what a search found; `edgekit tune` calls it."""
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
    rows = [_row(report, step) for step in report.steps]
    console.listing(_COLUMNS, rows, right=_NUMBERS)


def _row(report: TunedInC, step: TunedStep) -> tuple[str, ...]:
    is_own = step.best == step.own
    return (
        str(step.steps),
        _shown(report, step.own_us),
        "" if is_own else _shown(report, step.best_us),
        "" if is_own else multiple(step.own_us / step.best_us),
        step.own.words if is_own else step.best.words,
        step.words,
    )


def _shown(report: TunedInC, microseconds: float) -> str:
    """Format a time, or a count of instructions."""
    if report.unit == "instructions":
        return f"{amount(round(microseconds * 1e3))} instructions"
    return figure(microseconds / 1e6, "seconds", report.measured_by)
