"""The steps of a run: where the time goes, a timeline, and each beside what the run reached."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from edgekit.base.measurer import figure, measurer_in_words
from edgekit.base.roof import JUDGED, Limits, Roof, known_work, roof_of
from edgekit.base.wording import amount, counted, few, number, percent, size
from edgekit.pictures.parts import (
    OWN,
    Part,
    Table,
    channel,
    chart_of,
    names,
    owners_channel,
    table_of,
    time_scale,
    tooltips,
)
from edgekit.store.run_profile import RunProfile, RunStep
from edgekit.store.runs import BenchRun

_PROFILES = "`edgekit bench BUNDLE --profile` measures each step"
_MOST_BARS = 25
_MOST_EVENTS = 6000
_ZOOM = {"select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}


def owner_of(step: RunStep) -> str:
    return step.owner or OWN


def title_of(step: RunStep) -> str:
    """Return the layers that a step computes; its own name where they are unknown."""
    return few(step.layers or (step.name,))


def owners_of(steps: Sequence[RunStep]) -> tuple[str, ...]:
    """Return all owners, edgekit first."""
    return tuple(dict.fromkeys((OWN, *sorted(owner_of(step) for step in steps))))


def step_seconds(run: BenchRun, step: RunStep) -> float:
    """Return a step's time in the run's unit."""
    return step.time / 1e9 if run.unit == "seconds" else float(step.time)


def shares_part(run: BenchRun | None) -> Part:
    name, title, text = "steps", "Where the time goes", "The slowest steps of one inference."
    if run is None or run.profile is None:
        return Part(name, title, text, missing=_PROFILES)
    steps = [step for step in run.profile.steps if step.time]
    slowest = sorted(steps, key=lambda step: -step.time)
    scale = time_scale(step_seconds(run, slowest[0]) if slowest else 0.0, run.unit)
    rows = [
        {
            "layer": f"{place}. {title_of(step)}",
            "owner": owner_of(step),
            "time": step_seconds(run, step) * scale.factor,
            "words": figure(step_seconds(run, step), run.unit, run.measured_by),
            "share": _share(run, step),
        }
        for place, step in enumerate(slowest[:_MOST_BARS], 1)
    ]
    chart = chart_of(
        f"The {counted(len(rows), 'slowest step')} as bars",
        rows,
        height={"step": 20},
        mark="bar",
        encoding={
            "x": channel("time", scale.unit),
            "y": names("layer", axis={"labelLimit": 150}),
            "color": owners_channel(owners_of(run.profile.steps)),
            "tooltip": tooltips(layer="layers", owner="run by", words="time", share="share"),
        },
    )
    table = table_of(
        ("layers", "run by", "kind", "time", "share", "bytes", "operations"),
        (
            (
                *(title_of(step), owner_of(step), step.kind),
                *(figure(step_seconds(run, step), run.unit, run.measured_by), _share(run, step)),
                "" if step.bytes is None else size(step.bytes),
                "" if step.operations is None else amount(step.operations),
            )
            for step in slowest
        ),
        ("time", "share", "bytes", "operations"),
    )
    many = counted(run.profile.inferences, "profiled inference")
    text = f"Times are medians of {many}; a step computes neighbouring layers together."
    return Part(name, title, text, (chart,), table)


def timeline_part(run: BenchRun | None) -> Part:
    name, title = "timeline", "Timeline"
    text = "Some profiled inferences, step by step; gaps are between the steps."
    if run is None or run.profile is None or not run.profile.timeline:
        missing = _PROFILES
        if run is not None and run.profile is not None:
            missing = "this device gave no times of single steps"
        return Part(name, title, text, missing=missing)
    profile = run.profile
    longest = max(one.nanoseconds for one in profile.timeline) / 1e9
    scale = time_scale(longest, "seconds")
    to_unit = scale.factor / 1e9
    events = (
        {
            "inference": f"{place}",
            "layer": title_of(profile.steps[step]),
            "owner": owner_of(profile.steps[step]),
            "start": start * to_unit,
            "end": (start + taken) * to_unit,
            "words": figure(taken / 1e9, "seconds", run.measured_by),
        }
        for place, one in enumerate(profile.timeline, 1)
        for step, start, taken in zip(one.steps, one.starts, one.durations, strict=True)
    )
    shown = list(islice(events, _MOST_EVENTS))
    chart = chart_of(
        f"Timeline of {counted(len(profile.timeline), 'inference')} with their steps",
        shown,
        height={"step": 44},
        params=[{"name": "zoom", **_ZOOM}],
        mark={"type": "bar", "clip": True},
        encoding={
            "x": channel("start", scale.unit, scale={"nice": False}),
            "x2": {"field": "end"},
            "y": names("inference", "inference"),
            "color": owners_channel(owners_of(profile.steps)),
            "tooltip": tooltips(layer="layers", owner="run by", words="took"),
        },
    )
    many = counted(len(profile.timeline), "inference")
    text = (
        f"{many} of the profiled ones. Drag to move, turn the wheel to zoom, click twice to see "
        "all. `edgekit bench BUNDLE --trace FILE` writes the same for Perfetto."
    )
    return Part(name, title, text, (chart,), _first_inference(run, profile))


def _first_inference(run: BenchRun, profile: RunProfile) -> Table:
    first = profile.timeline[0]
    return table_of(
        ("layers", "run by", "starts at", "takes"),
        (
            (
                *(title_of(profile.steps[step]), owner_of(profile.steps[step])),
                figure(start / 1e9, "seconds", run.measured_by),
                figure(taken / 1e9, "seconds", run.measured_by),
            )
            for step, start, taken in islice(
                zip(first.steps, first.starts, first.durations, strict=True), _MOST_EVENTS
            )
        ),
        ("starts at", "takes"),
    )


def _limit_lines(limits: Limits, low: float, high: float) -> list[dict[str, object]]:
    """Draw what the hardware can do: a line for each type of numbers."""
    values = []
    for name, most in (("float32", limits.float32), ("small integers", limits.integers)):
        top = Roof(most, limits.bytes)
        ends = sorted({low, min(max(most / limits.bytes, low), high), high})
        values += [{"x": x, "y": top.at(x) / 1e9, "type": name} for x in ends]
    log = {"type": "log"}
    encoding = {
        "x": channel("x", "operations for each byte", scale=log),
        "y": channel("y", "GOP/s", scale=log),
        "detail": {"field": "type", "type": "nominal"},
        "tooltip": tooltips(type="the hardware's limit in"),
    }
    return [{"data": {"values": values}, "mark": {"type": "line"}, "encoding": encoding}]


def roofline_part(run: BenchRun | None) -> Part:
    """Show each step's operations a second over its operations for each byte.

    The roof is what steps of this run reached: the device can do that, and maybe more.
    """
    name, title = "roofline", "Roofline"
    text = (
        "The operations a second of each step, beside the most that steps of this run reached "
        "(dashed) and, where it was measured, what small loops reach on the hardware (solid)."
    )
    if run is None or run.profile is None:
        return Part(name, title, text, missing=_PROFILES)
    if run.unit != "seconds":
        return Part(name, title, text, missing=f"{run.unit} are no time: there is no rate")
    if run.measured_by not in JUDGED:
        by = measurer_in_words(run.measured_by).partition(":")[0]
        missing = f"what measured this run is {by}, whose rates tell nothing of the board"
        return Part(name, title, text, missing=missing)
    judged = [
        (step, work)
        for step in run.profile.steps
        if (work := known_work(step.operations, step.bytes, step_seconds(run, step))) is not None
    ]
    top = roof_of(work for _, work in judged)
    if top is None:
        missing = (
            "this bundle does not say the operations of its steps (build it again), or each takes "
            "less than a microsecond"
        )
        return Part(name, title, text, missing=missing)
    low = min(work.intensity for _, work in judged) / 2
    high = max(work.intensity for _, work in judged) * 2
    ends = sorted({low, min(max(top.operations / top.bytes, low), high), high})
    roof = [{"x": x, "y": top.at(x) / 1e9} for x in ends]
    rows = [
        {
            "layer": title_of(step),
            "owner": owner_of(step),
            "x": work.intensity,
            "y": work.rate / 1e9,
            "share": _share(run, step),
            "reached": percent(top.share(work)),
            "words": f"{number(work.rate / 1e9)} GOP/s",
        }
        for step, work in judged
    ]
    limits = run.profile.limits
    hardware = [] if limits is None else _limit_lines(limits, low, high)
    log = {"type": "log"}
    chart = chart_of(
        f"Roofline of {counted(len(rows), 'step')}",
        (),
        height=320,
        layer=[
            *hardware,
            {
                "data": {"values": roof},
                "mark": {"type": "line", "strokeDash": [6, 4]},
                "encoding": {
                    "x": channel("x", "operations for each byte", scale=log),
                    "y": channel("y", "GOP/s", scale=log),
                },
            },
            {
                "data": {"values": chart_of("", rows).spec["data"]["values"]},
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.9},
                "encoding": {
                    "x": channel("x", "operations for each byte", scale=log),
                    "y": channel("y", "GOP/s", scale=log),
                    "color": owners_channel(owners_of(run.profile.steps)),
                    "tooltip": tooltips(
                        layer="layers",
                        owner="run by",
                        words="rate",
                        reached="of the line",
                        share="of the time",
                    ),
                },
            },
        ],
    )
    slowest = sorted(judged, key=lambda one: -one[0].time)
    table = table_of(
        ("layers", "operations", "bytes", "GOP/s", "GB/s", "of the line"),
        (
            (
                title_of(step),
                amount(work.operations),
                size(work.bytes),
                number(work.rate / 1e9),
                number(work.bandwidth / 1e9),
                percent(top.share(work)),
            )
            for step, work in slowest
        ),
        ("operations", "bytes", "GOP/s", "GB/s", "of the line"),
    )
    text = (
        f"The line is the most that steps of this run reached: {number(top.operations / 1e9)} "
        f"GOP/s, and {number(top.bytes / 1e9)} GB/s of tensors and weights. The device "
        "can do that, and maybe more. A step far below it is worth a look."
    )
    if limits is not None:
        text += (
            f" Small loops on {counted(limits.threads, 'thread')} reach "
            f"{number(limits.float32 / 1e9)} GOP/s in float32, {number(limits.integers / 1e9)} in "
            f"small integers, and read {number(limits.bytes / 1e9)} GB/s: the solid lines. "
            "Steps whose data is in a cache may lie above the slope."
        )
    return Part(name, title, text, (chart,), table)


def _share(run: BenchRun, step: RunStep) -> str:
    return percent(step_seconds(run, step) / run.median) if run.median else ""
