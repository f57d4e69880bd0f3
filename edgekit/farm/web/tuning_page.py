"""The page of searches for faster kernels: the progress and curve of each."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base import svg
from edgekit.base.measurer import beside, search_figure
from edgekit.base.quoting import html_text
from edgekit.base.wording import counted, duration, multiple
from edgekit.farm.web.markup import LIVE_WORD, live_part, table, whole_page
from edgekit.store.moments import seconds_at, seconds_since
from edgekit.store.tuning_results import SessionCurve
from edgekit.store.tuning_runs import TuningProgress, TuningSession

_SHORT = 12
_WIDTH, _HEIGHT = 600, 120
_POINTS = 300


def tuning_page(curves: Sequence[SessionCurve]) -> str:
    body = f"<p>{LIVE_WORD}</p>" + live_part("/sessions", sessions_part(curves))
    return whole_page("Tuning", body, live=True)


def sessions_part(curves: Sequence[SessionCurve]) -> str:
    if not curves:
        return "<p>Nothing was tuned yet.</p>"
    heads = (
        *("session", "model", "board", "devices", "state", "since", "trials", "failed"),
        *("rules' own", "best so far", "gain", "left"),
    )
    rows = [_row(one.session, one.curve[-1] if one.curve else None) for one in curves]
    drawings = [_drawing(one) for one in curves if len(one.curve) > 1]
    return table(heads, rows, numbers=(6, 7, 8, 9, 10, 11)) + "".join(drawings)


def _row(session: TuningSession, point: TuningProgress | None) -> Sequence[str]:
    return (
        html_text(session.id[:_SHORT]),
        html_text(session.model),
        html_text(session.board),
        html_text(", ".join(session.devices)),
        f"<span class='{html_text(session.state)}'>{html_text(session.state)}</span>",
        html_text(session.started_at[:16].replace("T", " ")),
        *(("", "", "", "", "") if point is None else _figures(session, point)),
        html_text(_left(session, point)),
    )


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


def _drawing(one: SessionCurve) -> str:
    """Draw the best time so far and that of the rules' schedules, on an axis from zero."""
    curve = _thinned(one.curve)
    first, last = _seconds(curve[0]), _seconds(curve[-1])
    across = max(last - first, 1e-6)
    top = max(point.own_us for point in curve) or 1.0

    def path(times: Sequence[float], **style: str) -> str:
        across_of = [(_seconds(point) - first) / across for point in curve]
        places = zip(across_of, (min(time / top, 1.0) for time in times), strict=True)
        return svg.element("path", d=svg.curve(places, _WIDTH, _HEIGHT), **style)

    own = path([point.own_us for point in curve], class_="own")
    best = path([point.best_us for point in curve])
    devices = beside(", ".join(one.session.devices), one.session.measured_by)
    title = f"{one.session.model} on {devices}, in {one.session.unit}"
    words = f"the best of {counted(one.curve[-1].trials, 'trial')} so far"
    drawn = svg.picture(_WIDTH, _HEIGHT, own, best, role="img", aria_label=words)
    return f"<h2>{html_text(title)}</h2>{drawn}"


def _thinned(curve: Sequence[TuningProgress]) -> Sequence[TuningProgress]:
    """Thin out a curve to what the picture can show."""
    if len(curve) <= _POINTS:
        return curve
    return [curve[round(n * (len(curve) - 1) / (_POINTS - 1))] for n in range(_POINTS)]


def _seconds(point: TuningProgress) -> float:
    return seconds_at(point.at)
