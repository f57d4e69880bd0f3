"""The runs of a model on a device over time: medians, energy and temperature, by version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.base.measurer import figure, measurer_in_words
from edgekit.base.wording import celsius, counted, energy, measured, number
from edgekit.pictures.parts import (
    Chart,
    Part,
    channel,
    chart_of,
    names,
    table_of,
    time_scale,
    tooltips,
)
from edgekit.store.runs import BenchRun

History = Sequence[BenchRun]
"""Runs of one model on one device by one measurer in one unit, oldest first."""
_MEASURES = "`edgekit bench BUNDLE` measures, and keeps what it measured"


def history_part(histories: Sequence[History]) -> Part:
    """Show the medians of each history, with the version of edgekit that built the bundle."""
    name, title = "history", "History"
    text = "Every run in the store, by the version of edgekit that built the bundle."
    if not histories:
        return Part(name, title, text, missing=_MEASURES)
    rows = [_row(run) for runs in histories for run in reversed(runs)]
    table = table_of(
        ("when", "device", "median", "p90", "offload", "edgekit", "bundle", "energy", "°C"),
        rows,
        ("median", "p90", "energy", "°C"),
    )
    return Part(name, title, text, tuple(map(_medians, histories)), table)


def energy_part(histories: Sequence[History]) -> Part:
    name, title = "energy", "Energy and temperature"
    text = "The energy of one inference and the temperature of the device, beside the same runs."
    charts = [chart for runs in histories for chart in _sensed(runs)]
    if charts:
        return Part(name, title, text, tuple(charts))
    missing = _MEASURES
    if histories:
        missing = "the sensors of these devices told neither power nor temperature"
    return Part(name, title, text, missing=missing)


def title_of(runs: History) -> str:
    last = runs[-1]
    return f"{last.build.model} on {last.device} ({last.build.board}), in {last.unit}"


def grouped(runs: Sequence[BenchRun]) -> tuple[History, ...]:
    """Group runs, latest first, into histories: what belongs in one chart."""
    found: dict[tuple[str, ...], list[BenchRun]] = {}
    for run in reversed(runs):
        measure = (run.unit, run.measured_by or "")
        key = (run.build.model, run.build.board, run.device, *measure)
        found.setdefault(key, []).append(run)
    return tuple(tuple(own) for _, own in sorted(found.items()))


def _when(runs: History) -> dict[str, Any]:
    days = {run.measured_at[:10] for run in runs}
    form = "%d %b %Y" if len(days) > 2 else "%d %b %H:%M"
    axis = {"format": form, "tickCount": 5, "labelOverlap": True}
    return {"field": "when", "type": "temporal", "title": None, "axis": axis}


def _medians(runs: History) -> Chart:
    scale = time_scale(max(run.median for run in runs), runs[-1].unit)
    rows = [
        {
            "when": run.measured_at,
            "median": run.median * scale.factor,
            "p90": run.p90 * scale.factor,
            "version": run.build.edgekit_version,
            "words": figure(run.median, run.unit, run.measured_by),
            "offload": ", ".join(run.build.offload) or "none",
            "bundle": run.build.digest[:12],
        }
        for run in runs
    ]
    tooltip = [
        {"field": "when", "type": "temporal", "format": "%Y-%m-%d %H:%M"},
        *tooltips(words="median", version="edgekit", offload="offload", bundle="bundle"),
    ]
    return chart_of(
        f"Medians of {counted(len(runs), 'run')}: {title_of(runs)}",
        rows,
        title=_heading(runs),
        height=220,
        encoding={"x": _when(runs)},
        layer=[
            {"mark": "line", "encoding": {"y": channel("median", scale.unit)}},
            {"mark": "rule", "encoding": {"y": channel("median"), "y2": {"field": "p90"}}},
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {
                    "y": channel("median", scale.unit),
                    "color": names("version", "edgekit"),
                    "tooltip": tooltip,
                },
            },
        ],
    )


def _sensed(runs: History) -> list[Chart]:
    joules = [(run, run.joules) for run in runs if run.joules is not None]
    degrees = [
        (run, run.conditions.temperature_c)
        for run in runs
        if run.conditions.temperature_c is not None
    ]
    charts = []
    if joules:
        charts.append(
            _points(
                f"Energy of one inference: {title_of(runs)}",
                runs,
                "mJ",
                [(run, value * 1e3, energy(value)) for run, value in joules],
            )
        )
    if degrees:
        charts.append(
            _points(
                f"Temperature: {title_of(runs)}",
                runs,
                "°C",
                [(run, value, celsius(value)) for run, value in degrees],
            )
        )
    return charts


def _points(
    label: str, runs: History, unit: str, values: Sequence[tuple[BenchRun, float, str]]
) -> Chart:
    rows = [
        {
            "when": run.measured_at,
            "value": value,
            "words": words,
            "version": run.build.edgekit_version,
            "median": figure(run.median, run.unit, run.measured_by),
        }
        for run, value, words in values
    ]
    return chart_of(
        label,
        rows,
        title=_heading(runs),
        height=150,
        mark={"type": "line", "point": {"size": 50, "filled": True}},
        encoding={
            "x": _when(runs),
            "y": channel("value", unit),
            "tooltip": tooltips(words=unit, median="median", version="edgekit"),
        },
    )


def _heading(runs: History) -> str:
    return f"{runs[-1].device} ({measurer_in_words(runs[-1].measured_by).partition(':')[0]})"


def _row(run: BenchRun) -> tuple[str, ...]:
    degrees = run.conditions.temperature_c
    return (
        run.measured_at[:16].replace("T", " "),
        run.device,
        figure(run.median, run.unit, run.measured_by),
        measured(run.p90, run.unit),
        ", ".join(run.build.offload) or "none",
        run.build.edgekit_version,
        run.build.digest[:12],
        "" if run.joules is None else energy(run.joules),
        "" if degrees is None else number(round(degrees)),
    )
