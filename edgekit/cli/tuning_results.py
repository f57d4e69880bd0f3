"""edgekit results tuning: list and show tuning sessions."""

from __future__ import annotations

import click

from edgekit.base.measurer import beside, measurer_in_words, search_figure
from edgekit.base.wording import multiple
from edgekit.cli.console import Console
from edgekit.cli.options import Command, json_option, pass_console, store_option
from edgekit.store.tuning_results import SessionListing, SessionReport
from edgekit.store.tuning_runs import KernelSearch, TuningProgress, TuningSession

_SHORT = 12
_POINTS_SHOWN = 12


@click.command("tuning", cls=Command)
@click.argument("session", required=False)
@click.option(
    "--last",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of sessions, the latest first.",
)
@store_option
@json_option
@pass_console
def tuning_command(console: Console, session: str | None, last: int, url: str | None) -> None:
    """List tuning sessions, or show one: SESSION is its id, a prefix of it, or `latest`."""
    from edgekit.store.tuning_results import list_sessions, show_session

    if session is None:
        listing = list_sessions(last, console.workspace.at_store(url).data.store)
        console.report(listing, lambda: _render_list(console, listing))
    else:
        found = show_session(session, console.workspace.at_store(url).data.store)
        console.report(found, lambda: _render_session(console, found))


def _render_list(console: Console, listing: SessionListing) -> None:
    if not listing.sessions:
        console.print(
            f"no tuning session is in {listing.store} yet: `edgekit tune MODEL` makes one"
        )
        return
    console.table(
        ("session", "when", "model", "board", "devices", "state", "trials", "failed", "gain", "by"),
        [
            (
                one.session.id[:_SHORT],
                one.session.started_at[:16].replace("T", " "),
                one.session.model,
                one.session.board,
                ", ".join(one.session.devices),
                one.session.state,
                "" if one.progress is None else one.progress.trials,
                "" if one.progress is None else one.progress.failed,
                _gain(one.progress),
                one.session.measured_by or "unknown",
            )
            for one in listing.sessions
        ],
        right=("trials", "failed", "gain"),
        spare=("failed", "board", "devices"),
    )


def _render_session(console: Console, report: SessionReport) -> None:
    session = report.session
    failures = ", ".join(f"{count} {kind}" for kind, count in report.failures.items())
    console.heading(f"{session.model} on {', '.join(session.devices)}: {session.state}")
    console.fields(
        [
            ("session", session.id),
            ("board", session.board),
            ("measured by", measurer_in_words(session.measured_by)),
            ("begun", f"{session.started_at[:19].replace('T', ' ')}, from {session.host}"),
            (
                "ended",
                None if session.ended_at is None else session.ended_at[:19].replace("T", " "),
            ),
            ("kernels to tune", session.kernels),
            ("trials", sum(kernel.trials for kernel in report.kernels)),
            ("failed", failures or None),
            ("gain", _gain(report.curve[-1] if report.curve else None) or None),
        ]
    )
    if report.curve:
        console.table(
            ("at", "trials", "failed", "rules' own", "best so far", "gain"),
            [_point(point, session) for point in _some(report.curve)],
            right=("trials", "failed", "rules' own", "best so far", "gain"),
        )
    if report.kernels:
        console.table(
            ("kernel", "trials", "failed", "rule's own", "best", "gain", "by"),
            [_kernel(kernel, session.unit) for kernel in report.kernels],
            right=("trials", "failed", "rule's own", "best", "gain"),
        )


def _point(point: TuningProgress, session: TuningSession) -> tuple[object, ...]:
    return (
        point.at[11:19],
        point.trials,
        point.failed,
        beside(search_figure(point.own_us, session.unit), session.measured_by),
        beside(search_figure(point.best_us, session.unit), session.measured_by),
        _gain(point),
    )


def _kernel(kernel: KernelSearch, unit: str) -> tuple[object, ...]:
    own = kernel.own_us
    best = kernel.best_us
    return (
        kernel.words,
        kernel.trials,
        kernel.failed,
        "" if own is None else search_figure(own, unit),
        "" if best is None else search_figure(best, unit),
        "" if own is None or best is None else _times(own, best),
        "" if kernel.choice is None else str(kernel.choice.get("family", "")),
    )


def _gain(point: TuningProgress | None) -> str:
    return "" if point is None else _times(point.own_us, point.best_us)


def _times(own: float, best: float) -> str:
    return multiple(own / best) if best > 0 else ""


def _some(curve: tuple[TuningProgress, ...]) -> list[TuningProgress]:
    """Return the first point, the last, and a few between."""
    if len(curve) <= _POINTS_SHOWN:
        return list(curve)
    places = {round(n * (len(curve) - 1) / (_POINTS_SHOWN - 1)) for n in range(_POINTS_SHOWN)}
    return [curve[place] for place in sorted(places)]
