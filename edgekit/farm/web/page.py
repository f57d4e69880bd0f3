"""The farm's devices and benchmark results as pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote

from edgekit.base.measurer import beside, figure, measurer_in_words
from edgekit.base.quoting import html_text
from edgekit.base.wording import duration, measured, number
from edgekit.devices.keeper_messages import DeviceStatus, FarmStatus, kind_of, users_of
from edgekit.farm.web.markup import LIVE_WORD, button, live_part, table, whole_page
from edgekit.pictures.graph import graph_part
from edgekit.pictures.history import energy_part, grouped, history_part, title_of
from edgekit.pictures.latencies import latencies_part
from edgekit.pictures.page import charts_html, part_html, pictures_data
from edgekit.pictures.steps import roofline_part, shares_part, timeline_part
from edgekit.pictures.tuning import tuning_part
from edgekit.store.comparing import Comparison
from edgekit.store.kept import Kept
from edgekit.store.runs import BenchRun

_SHORT = 12
RESERVE = "Reserve 1 h"


def farm_page(status: FarmStatus, dashboard: str = "") -> str:
    """Show the devices, and where the cluster that compiles for them shows itself."""
    cluster = f"<p><a href='{html_text(dashboard)}'>The cluster's dashboard</a></p>"
    body = (
        f"<p>Up for {duration(status.now - status.started)}, tracker at "
        f"<code>{html_text(status.tracker)}</code>. {LIVE_WORD}</p><p id='done' role='status'></p>"
        + live_part("/devices", devices_table(status))
        + (cluster if dashboard else "")
    )
    return whole_page("Farm", body, live=True)


def devices_table(status: FarmStatus) -> str:
    hosts = len(status.hosts) > 0
    rows = [_device_row(device, status.now, hosts) for device in status.devices]
    first = ("device", *(("host",) * hosts), "board", "kind", "state", "since", "who")
    numbers = (len(first), len(first) + 1, len(first) + 2)
    heads = (*first, "load", "°C", "sessions", "why", "do")
    devices = table("Devices", heads, rows, numbers=numbers)
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
        _buttons(device),
    )


def _buttons(device: DeviceStatus) -> str:
    """Offer what may be done with a device of this host; others are their own farms' business."""
    if device.host:
        return ""
    is_out = device.state in ("draining", "drained")
    words = [("Resume", "resume") if is_out else ("Drain", "drain")]
    words.append(("Release", "release") if device.reservation else (RESERVE, "reserve"))
    return "".join(
        button(text, device.name, f"/{verb}?device={quote(device.name, safe='')}")
        for text, verb in words
    )


def results_page(histories: Sequence[Sequence[BenchRun]]) -> str:
    """Show runs in groups, each of one model on one device by one measurer in one unit."""
    parts, drawn = [], []
    for place, runs in enumerate(histories):
        last = runs[-1]
        measurer = f"Measured by {measurer_in_words(last.measured_by)}."
        part = replace(history_part([runs]), name=f"history-{place}")
        rows = [
            (
                f"<a href='/run?id={html_text(run.id)}'>{html_text(run.id[:_SHORT])}</a>",
                html_text(run.measured_at[:16].replace("T", " ")),
                html_text(", ".join(run.build.offload) or "none"),
                *_cells(run),
                str(run.conditions.threads),
                html_text(run.purpose),
                f"<a href='/compare?before={html_text(before.id)}&amp;after={html_text(run.id)}'>"
                f"with {html_text(before.id[:_SHORT])}</a>"
                if before is not None
                else "",
            )
            for before, run in zip((None, *runs), runs, strict=False)
        ]
        heads = ("run", "when", "offload", "median", "p90", "threads", "for", "compare")
        title = title_of(runs)
        parts.append(
            f"<h2>{html_text(title)}</h2><p>{html_text(measurer)}</p>{charts_html(part)}"
            + table(title, heads, list(reversed(rows)), numbers=(3, 4, 5))
        )
        drawn.append(part)
    body = "".join(parts) or "<p>Nothing was measured yet.</p>"
    return whole_page("Results", body + pictures_data(drawn), pictures=True)


def run_page(run: BenchRun, kept: Kept) -> str:
    """Show one run as `edgekit report` does."""
    histories = grouped(kept.runs)
    parts = (
        graph_part(None, run),
        shares_part(run),
        timeline_part(run),
        latencies_part(run),
        roofline_part(run),
        energy_part(histories),
        tuning_part(kept.curves),
        history_part(histories),
    )
    median = html_text(figure(run.median, run.unit, run.measured_by))
    body = f"<p>Median {median}, run {html_text(run.id)}.</p>" + "".join(map(part_html, parts))
    title = f"{run.build.model} on {run.device}, {run.measured_at[:16].replace('T', ' ')}"
    return whole_page(title, body + pictures_data(parts), pictures=True)


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
        + table("Both runs", ("", "run", "when", "median", "p90", "offload"), rows, numbers=(3, 4))
        + f"<p>{comparison.spread_in_words()}</p>"
        + "".join(f"<p>{html_text(note)}</p>" for note in notes)
    )
    return whole_page("Comparison", body)


def error_page(message: str) -> str:
    return whole_page("edgekit", f"<p>{html_text(message)}</p>")


def _cells(run: BenchRun) -> tuple[str, str]:
    """Return the median with its measurer, and the 90th percentile."""
    median = figure(run.median, run.unit, run.measured_by)
    return html_text(median), html_text(measured(run.p90, run.unit))
