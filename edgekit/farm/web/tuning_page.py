"""The pages of searches for faster kernels: the progress and curve of each, and one in full."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base.measurer import beside, search_figure
from edgekit.base.quoting import html_text
from edgekit.base.wording import duration, multiple
from edgekit.farm.web.markup import LIVE_WORD, live_part, table, whole_page
from edgekit.pictures.page import charts_html, part_html, pictures_data
from edgekit.pictures.tuning import tuning_part
from edgekit.store.moments import seconds_since
from edgekit.store.tuning_results import SessionCurve, SessionReport
from edgekit.store.tuning_runs import TuningProgress, TuningSession

_SHORT = 12


def tuning_page(curves: Sequence[SessionCurve]) -> str:
    body = f"<p>{LIVE_WORD}</p>" + live_part("/sessions", sessions_part(curves))
    return whole_page("Tuning", body, live=True, pictures=True)


def sessions_part(curves: Sequence[SessionCurve]) -> str:
    if not curves:
        return "<p>Nothing was tuned yet.</p>"
    heads = (
        *("session", "model", "board", "devices", "state", "since", "trials", "failed"),
        *("rules' own", "best so far", "gain", "left"),
    )
    rows = [_row(one.session, one.curve[-1] if one.curve else None) for one in curves]
    part = tuning_part(curves)
    return (
        table("Searches", heads, rows, numbers=(6, 7, 8, 9, 10, 11))
        + charts_html(part)
        + pictures_data([part])
    )


def session_page(found: SessionReport) -> str:
    """Show one search in full: its curve, what it found for each kernel, and why others failed."""
    session = found.session
    point = found.curve[-1] if found.curve else None
    part = tuning_part([SessionCurve(session, found.curve)])
    facts = [
        ("session", html_text(session.id)),
        ("model", html_text(session.model)),
        ("board", html_text(session.board)),
        ("devices", html_text(", ".join(session.devices))),
        ("state", _state(session)),
        ("started", html_text(session.started_at[:16].replace("T", " "))),
        ("left", html_text(_left(session, point))),
    ]
    rows = [
        (
            html_text(kernel.words),
            str(kernel.trials),
            str(kernel.failed),
            *(
                "" if value is None else html_text(search_figure(value, session.unit))
                for value in (kernel.own_us, kernel.best_us)
            ),
        )
        for kernel in found.kernels
    ]
    failures = [(html_text(kind), str(count)) for kind, count in found.failures.items()]
    kernels = table(
        "Kernels", ("kernel", "trials", "failed", "rules' own", "best"), rows, (1, 2, 3, 4)
    )
    failed = table("Failures", ("kind", "count"), failures, (1,))
    body = (
        "<dl class='facts'>"
        + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts if value)
        + f"</dl>{part_html(part)}"
        + (f"<h2>Kernels</h2>{kernels}" if rows else "")
        + (f"<h2>Failures</h2>{failed}" if failures else "")
        + pictures_data([part])
    )
    return whole_page(f"Search for {session.model} on {session.board}", body, pictures=True)


def _row(session: TuningSession, point: TuningProgress | None) -> Sequence[str]:
    return (
        f"<a href='/session?id={html_text(session.id)}'>{html_text(session.id[:_SHORT])}</a>",
        html_text(session.model),
        html_text(session.board),
        html_text(", ".join(session.devices)),
        _state(session),
        html_text(session.started_at[:16].replace("T", " ")),
        *(("", "", "", "", "") if point is None else _figures(session, point)),
        html_text(_left(session, point)),
    )


def _state(session: TuningSession) -> str:
    return f"<span class='{html_text(session.state)}'>{html_text(session.state)}</span>"


def _figures(session: TuningSession, point: TuningProgress) -> tuple[str, ...]:
    wanted = "" if session.wanted_trials is None else f" of {session.wanted_trials}"
    return (
        f"{point.trials}{wanted}",
        str(point.failed),
        beside(search_figure(point.own_us, session.unit), session.measured_by),
        beside(search_figure(point.best_us, session.unit), session.measured_by),
        multiple(point.own_us / point.best_us) if point.best_us > 0 else "",
    )


def _left(session: TuningSession, point: TuningProgress | None) -> str:
    """Estimate the time left; empty if unknown."""
    if session.state != "running":
        return ""
    passed = seconds_since(session.started_at)
    left = []
    if session.wanted_seconds is not None:
        left.append(session.wanted_seconds - passed)
    if session.wanted_trials is not None and point is not None and point.trials > 0:
        left.append(passed / point.trials * (session.wanted_trials - point.trials))
    return duration(max(min(left), 0.0)) if left else ""
