"""The farm's devices and benchmark results as pages."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base import svg
from edgekit.base.measurer import beside, figure, measurer_in_words
from edgekit.base.quoting import html_text
from edgekit.base.wording import counted, duration, measured, number
from edgekit.devices.keeper_messages import DeviceStatus, FarmStatus, kind_of, users_of
from edgekit.farm.web.markup import LIVE_WORD, live_part, table, whole_page
from edgekit.store.comparing import Comparison
from edgekit.store.runs import BenchRun

_SHORT = 12


def farm_page(status: FarmStatus) -> str:
    body = (
        f"<p>Up for {duration(status.now - status.started)}, tracker at "
        f"<code>{html_text(status.tracker)}</code>. {LIVE_WORD}</p>"
        + live_part("/devices", devices_table(status))
    )
    return whole_page("Farm", body, live=True)


def devices_table(status: FarmStatus) -> str:
    hosts = len(status.hosts) > 0
    rows = [_device_row(device, status.now, hosts) for device in status.devices]
    first = ("device", *(("host",) * hosts), "board", "kind", "state", "since", "who")
    numbers = (len(first), len(first) + 1, len(first) + 2)
    devices = table((*first, "load", "°C", "sessions", "why"), rows, numbers=numbers)
    return devices + "".join(
        f"<p>{html_text(host.name)} ({html_text(host.address)}) is "
        f"<span class='{html_text(host.state)}'>{html_text(host.state)}</span>: "
        f"{html_text(host.reason)}</p>"
        for host in status.hosts
        if host.state != "up"
    )


def _device_row(device: DeviceStatus, now: float, hosts: bool) -> Sequence[str]:
    why = device.reason
    if device.again_at is not None:
        why = f"{why}; tried again in {duration(max(device.again_at - now, 0))}"
    return (
        html_text(device.name),
        *((html_text(device.host or "here"),) * hosts),
        html_text(device.board),
        kind_of(device),
        f"<span class='{html_text(device.state)}'>{html_text(device.state)}</span>",
        html_text(duration(max(now - device.since, 0))),
        html_text(users_of(device, now)),
        "" if device.load is None else f"{device.load:.2f}",
        "" if device.temperature is None else number(round(device.temperature)),
        str(device.sessions),
        html_text(why),
    )


def results_page(histories: Sequence[Sequence[BenchRun]]) -> str:
    """Show runs in groups, each of one model on one device by one measurer in one unit."""
    parts = []
    for runs in histories:
        last = runs[-1]
        title = f"{last.build.model} on {last.device} ({last.build.board}), in {last.unit}"
        measurer = f"Measured by {measurer_in_words(last.measured_by)}."
        rows = [
            (
                f"<a href='/compare?before={html_text(before.id)}&amp;after={html_text(run.id)}'>"
                f"{html_text(run.id[:_SHORT])}</a>"
                if before is not None
                else html_text(run.id[:_SHORT]),
                html_text(run.measured_at[:16].replace("T", " ")),
                html_text(", ".join(run.build.offload) or "none"),
                *_cells(run),
                str(run.conditions.threads),
                html_text(run.purpose),
            )
            for before, run in zip((None, *runs), runs, strict=False)
        ]
        parts.append(
            f"<h2>{html_text(title)}</h2><p>{html_text(measurer)}</p>{_curve(runs)}"
            + table(
                ("run", "when", "offload", "median", "p90", "threads", "for"),
                list(reversed(rows)),
                numbers=(3, 4, 5),
            )
        )
    return whole_page("Results", "".join(parts) or "<p>Nothing was measured yet.</p>")


def comparison_page(comparison: Comparison) -> str:
    before, after = comparison.before, comparison.after
    rows = [
        (
            title,
            html_text(run.id[:_SHORT]),
            html_text(run.measured_at[:16].replace("T", " ")),
            *_cells(run),
            html_text(", ".join(run.build.offload) or "none"),
        )
        for title, run in (("before", before), ("after", after))
    ]
    notes = [f"not comparable: {text}" for text in comparison.obstacles] + list(comparison.remarks)
    body = (
        f"<h2>{html_text(after.build.model)} on "
        f"{html_text(beside(after.device, after.measured_by))}: "
        f"{comparison.verdict}</h2>"
        + table(("", "run", "when", "median", "p90", "offload"), rows, numbers=(3, 4))
        + f"<p>{comparison.spread_in_words()}</p>"
        + "".join(f"<p>{html_text(note)}</p>" for note in notes)
    )
    return whole_page("Comparison", body)


def error_page(message: str) -> str:
    return whole_page("edgekit", f"<p>{html_text(message)}</p>")


def _curve(runs: Sequence[BenchRun]) -> str:
    """Draw the medians over time, on an axis from zero."""
    if len(runs) < 2:
        return ""
    width, height = 600, 80
    top = max(run.median for run in runs) or 1.0
    places = ((place / (len(runs) - 1), run.median / top) for place, run in enumerate(runs))
    path = svg.element("path", d=svg.curve(places, width, height))
    words = f"medians of {counted(len(runs), 'run')}"
    return svg.picture(width, height, path, role="img", aria_label=words)


def _cells(run: BenchRun) -> tuple[str, str]:
    """Return the median with its measurer, and the 90th percentile."""
    median = figure(run.median, run.unit, run.measured_by)
    return html_text(median), html_text(measured(run.p90, run.unit))
