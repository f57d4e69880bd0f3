"""The curve of a search for faster kernels."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base.measurer import beside, search_figure
from edgekit.base.wording import counted, duration, multiple
from edgekit.pictures.parts import Chart, Part, channel, chart_of, names, table_of, time_scale
from edgekit.pictures.parts import tooltips as tooltips_of
from edgekit.store.moments import seconds_at
from edgekit.store.tuning_results import SessionCurve
from edgekit.store.tuning_runs import TuningProgress

_MOST_POINTS = 300
_SHORT = 12
_BEST, _OWN = "best so far", "the rules' own"


def tuning_part(curves: Sequence[SessionCurve]) -> Part:
    """Show what each search found over time; one without two points has no curve."""
    name, title = "tuning", "Tuning"
    text = "The time of one inference with the best kernels found so far, over the search."
    drawn = [one for one in curves if len(one.curve) > 1]
    if not drawn:
        return Part(name, title, text, missing="`edgekit tune MODEL` searches for faster kernels")
    table = table_of(
        ("session", "model", "devices", "state", "trials", "failed", _OWN, _BEST, "gain"),
        (_row(one) for one in drawn),
        ("trials", "failed", _OWN, _BEST, "gain"),
    )
    return Part(name, title, text, tuple(map(curve_chart, drawn)), table)


def curve_chart(one: SessionCurve) -> Chart:
    unit = one.session.unit
    in_unit = 1e-6 if unit == "seconds" else 1e3
    scale = time_scale(max(point.own_us for point in one.curve) * in_unit, unit)
    began = seconds_at(one.curve[0].at)
    rows = [
        {
            "minutes": (seconds_at(point.at) - began) / 60,
            "line": line,
            "time": value * in_unit * scale.factor,
            "words": search_figure(value, unit),
            "trials": f"{point.trials:,}",
            "passed": duration(seconds_at(point.at) - began),
        }
        for point in _thinned(one.curve)
        for line, value in ((_BEST, point.best_us), (_OWN, point.own_us))
    ]
    devices = beside(", ".join(one.session.devices), one.session.measured_by)
    last = one.curve[-1]
    return chart_of(
        f"{counted(last.trials, 'trial')} of {one.session.model} on {devices}",
        rows,
        title=f"{one.session.model} on {devices}",
        height=220,
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        encoding={
            "x": channel("minutes", "minutes"),
            "y": channel("time", scale.unit),
            "color": names("line", None, scale={"domain": [_BEST, _OWN]}),
            "strokeDash": names("line", None, scale={"domain": [_BEST, _OWN]}),
            "tooltip": tooltips_of(line="", words="time", trials="trials", passed="after"),
        },
    )


def _thinned(curve: Sequence[TuningProgress]) -> Sequence[TuningProgress]:
    """Thin out a curve to what the picture can show."""
    if len(curve) <= _MOST_POINTS:
        return curve
    last = len(curve) - 1
    return [curve[round(n * last / (_MOST_POINTS - 1))] for n in range(_MOST_POINTS)]


def _row(one: SessionCurve) -> tuple[str, ...]:
    last, unit = one.curve[-1], one.session.unit
    return (
        one.session.id[:_SHORT],
        one.session.model,
        ", ".join(one.session.devices),
        one.session.state,
        f"{last.trials:,}",
        f"{last.failed:,}",
        beside(search_figure(last.own_us, unit), one.session.measured_by),
        beside(search_figure(last.best_us, unit), one.session.measured_by),
        multiple(last.own_us / last.best_us) if last.best_us > 0 else "",
    )
