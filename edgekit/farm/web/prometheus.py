"""The farm's state in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base.quoting import prometheus_label
from edgekit.farm.health import State
from edgekit.farm.status import DeviceStatus, FarmStatus
from edgekit.store.tuning_results import SessionSummary

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATES: tuple[State, ...] = (
    "starting",
    "free",
    "busy",
    "lost",
    "quarantined",
    "draining",
    "drained",
)


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
    for name, kind, text, values in (
        ("trials_total", "counter", "Candidates so far.", [p.trials for _, p in points]),
        (
            "failed_total",
            "counter",
            "Candidates that failed so far.",
            [p.failed for _, p in points],
        ),
        (
            "own_seconds",
            "gauge",
            "Time of the model's kernels with the rules' schedules.",
            [p.own_us / 1e6 for _, p in points],
        ),
        (
            "best_seconds",
            "gauge",
            "Time of the model's kernels with the best schedules so far.",
            [p.best_us / 1e6 for _, p in points],
        ),
    ):
        lines += [f"# HELP edgekit_tuning_{name} {text}", f"# TYPE edgekit_tuning_{name} {kind}"]
        lines += [
            f'edgekit_tuning_{name}{{session="{session.id}",model={prometheus_label(session.model)},'
            f"board={prometheus_label(session.board)}}} {value}"
            for (session, _), value in zip(points, values, strict=True)
        ]
    return "\n".join(lines) + "\n"


def _labels(device: DeviceStatus) -> str:
    return f"device={prometheus_label(device.name)},board={prometheus_label(device.board)}"
