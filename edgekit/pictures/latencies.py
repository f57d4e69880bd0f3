"""The latencies of a run: how often each came, and one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from edgekit.base.measurer import beside, figure
from edgekit.base.wording import counted, duration
from edgekit.pictures.parts import Part, channel, chart_of, table_of, time_scale, tooltips
from edgekit.store.runs import BenchRun

_MOST_BARS = 60
_FEWEST_BARS = 8
_MOST_POINTS = 1500
_TAIL = 0.995
"""The share of the runs that have bars of their own; the slowest are in the last one."""


def latencies_part(run: BenchRun | None) -> Part:
    title = "Latencies"
    if run is None or not run.samples:
        missing = "`edgekit bench BUNDLE` measures every inference"
        if run is not None:
            missing = f"this run was counted in {run.unit}, which are the same in each inference"
        return Part("latencies", title, "How long single inferences took.", missing=missing)
    ordered = sorted(run.samples)
    scale = time_scale(run.median, "seconds")
    to_unit = scale.factor / 1e9
    bars = [
        {
            "from": low * to_unit,
            "to": high * to_unit,
            "runs": count,
            "range": f"{duration(low / 1e9)} to {duration(high / 1e9)}",
        }
        for low, high, count in _bars(ordered)
    ]
    marks = [
        {"at": value * scale.factor, "name": name, "value": duration(value)}
        for name, value in (("median", run.median), ("p90", run.p90), ("p99", run.p99))
    ]
    many = counted(len(run.samples), "inference")
    histogram = chart_of(
        f"Histogram of {many}: median {duration(run.median)}, p90 {duration(run.p90)}",
        (),
        height=220,
        layer=[
            {
                "data": {"values": bars},
                "mark": {"type": "bar", "binSpacing": 1},
                "encoding": {
                    "x": channel("from", scale.unit, bin={"binned": True}, scale={"zero": False}),
                    "x2": {"field": "to"},
                    "y": channel("runs", "inferences"),
                    "tooltip": tooltips(range="from", runs="inferences"),
                },
            },
            {
                "data": {"values": marks},
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {
                    "x": channel("at", scale.unit),
                    "strokeDash": {"field": "name", "type": "nominal", "title": None, "sort": None},
                    "tooltip": tooltips(name="", value="at"),
                },
            },
        ],
    )
    points = [
        {"run": place + 1, "time": value * to_unit, "words": duration(value / 1e9)}
        for place, value in _thinned(run.samples)
    ]
    trace = chart_of(
        f"{many}, in the order in which they ran",
        points,
        height=220,
        mark={"type": "line", "point": {"size": 12}, "strokeWidth": 1},
        encoding={
            "x": channel("run", "inference"),
            "y": channel("time", scale.unit, scale={"zero": False}),
            "tooltip": tooltips(run="inference", words="took"),
        },
    )
    rows = [
        (name, duration(value))
        for name, value in (
            *(("fastest", run.minimum), ("median", run.median), ("mean", run.mean)),
            *(("p90", run.p90), ("p99", run.p99), ("slowest", ordered[-1] / 1e9)),
            ("standard deviation", run.stdev),
        )
    ]
    median = figure(run.median, run.unit, run.measured_by)
    text = f"{many} after {run.warmup:,} to warm up; the median is {median}."
    table = table_of(("latency", beside("time", run.measured_by)), rows, ("time",))
    return Part("latencies", title, text, (histogram, trace), table)


def _bars(ordered: Sequence[int]) -> Iterator[tuple[float, float, int]]:
    """Yield ends and counts; the last bar holds the slowest runs too."""
    count = len(ordered)
    low, high = ordered[0], ordered[min(math.ceil(count * _TAIL), count) - 1]
    bars = max(_FEWEST_BARS, min(_MOST_BARS, round(math.sqrt(count))))
    width = max((high - low) / bars, 1.0)
    counts = [0] * bars
    for value in ordered:
        counts[min(int((value - low) / width), bars - 1)] += 1
    for bar, found in enumerate(counts):
        yield low + bar * width, low + (bar + 1) * width, found


def _thinned(samples: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield places and values: of each stretch the fastest and the slowest if there are many."""
    stretch = -(-2 * len(samples) // _MOST_POINTS)
    if stretch <= 2:
        yield from enumerate(samples)
        return
    for start in range(0, len(samples), stretch):
        part = range(start, min(start + stretch, len(samples)))
        ends = {min(part, key=samples.__getitem__), max(part, key=samples.__getitem__)}
        yield from ((place, samples[place]) for place in sorted(ends))
