"""The farm's state in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import get_args

from edgekit.base.quoting import prometheus_label
from edgekit.devices.keeper_messages import DeviceStatus, FarmStatus, State
from edgekit.store.tuning_results import SessionSummary
from edgekit.store.tuning_runs import TuningSession

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATES: tuple[State, ...] = get_args(State)


def as_metrics(status: FarmStatus) -> str:
    lines = [
        "# HELP edgekit_farm_uptime_seconds Time since the farm came up.",
        "# TYPE edgekit_farm_uptime_seconds gauge",
        f"edgekit_farm_uptime_seconds {status.now - status.started:.3f}",
        "# HELP edgekit_device_state 1 for the state that a device is in.",
        "# TYPE edgekit_device_state gauge",
    ]
    for device in status.devices:
        for state in _STATES:
            lines.append(
                f'edgekit_device_state{{{_labels(device)},state="{state}"}} '
                f"{int(device.state == state)}"
            )
    for name, kind, text, values in (
        (
            "edgekit_device_sessions_total",
            "counter",
            "Sessions that the device served since the farm came up.",
            [(device, device.sessions) for device in status.devices],
        ),
        (
            "edgekit_device_faults",
            "gauge",
            "Losses of the device within the window for quarantine.",
            [(device, device.faults) for device in status.devices],
        ),
        (
            "edgekit_device_waiting",
            "gauge",
            "Clients that wait for a lease of the device.",
            [(device, len(device.queue)) for device in status.devices],
        ),
        (
            "edgekit_device_load",
            "gauge",
            "Load average of the last minute.",
            [(device, device.load) for device in status.devices],
        ),
        (
            "edgekit_device_temperature_celsius",
            "gauge",
            "Temperature of the hottest zone.",
            [(device, device.temperature) for device in status.devices],
        ),
    ):
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [
            f"{name}{{{_labels(device)}}} {value}" for device, value in values if value is not None
        ]
    return "\n".join(lines) + "\n"


def tuning_metrics(running: Sequence[SessionSummary] | None) -> str:
    """Write the metrics of running sessions; `running` is None if the store does not answer."""
    lines = [
        "# HELP edgekit_store_up Whether the store of measurements answers.",
        "# TYPE edgekit_store_up gauge",
        f"edgekit_store_up {int(running is not None)}",
    ]
    if running is None:
        return "\n".join(lines) + "\n"
    lines += [
        "# HELP edgekit_tuning_sessions Running searches for faster kernels.",
        "# TYPE edgekit_tuning_sessions gauge",
        f"edgekit_tuning_sessions {len(running)}",
    ]
    points = [(one.session, one.progress) for one in running if one.progress is not None]
    counts = (
        ("trials_total", "Candidates so far.", attrgetter("trials")),
        ("failed_total", "Candidates that failed so far.", attrgetter("failed")),
    )
    for name, text, value in counts:
        lines += _tuning_metric(name, "counter", text, [(s, value(p)) for s, p in points])
    for unit, what, factor in (("seconds", "Time", 1e-6), ("instructions", "Instructions", 1e3)):
        for which, by in (("own", "the rules' schedules"), ("best", "the best schedules so far")):
            found = [(s, getattr(p, f"{which}_us") * factor) for s, p in points if s.unit == unit]
            text = f"{what} of the model's kernels with {by}."
            lines += _tuning_metric(f"{which}_{unit}", "gauge", text, found)
    return "\n".join(lines) + "\n"


def _tuning_metric(
    name: str, kind: str, text: str, values: Sequence[tuple[TuningSession, float]]
) -> list[str]:
    return [
        f"# HELP edgekit_tuning_{name} {text}",
        f"# TYPE edgekit_tuning_{name} {kind}",
        *(
            f'edgekit_tuning_{name}{{session="{session.id}",model={prometheus_label(session.model)},'
            f"board={prometheus_label(session.board)},"
            f'measured_by="{session.measured_by or "unknown"}"}} {value}'
            for session, value in values
        ),
    ]


def _labels(device: DeviceStatus) -> str:
    return f"device={prometheus_label(device.name)},board={prometheus_label(device.board)}"
