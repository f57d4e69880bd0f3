"""Rolls back to an earlier version of a model, after checking that it still runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.base.errors import BuildError, DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.report import Report
from edgekit.devices.device import KeepsVersions
from edgekit.devices.linux.agent_messages import AgentMessages
from edgekit.devices.linux.device_log import log_line
from edgekit.devices.linux.ready_agent import ReadyAgent
from edgekit.devices.linux.region_work import WorkShown
from edgekit.devices.linux.runner_build import (
    RunnerSource,
    compile_on_device,
    library_of,
    sources_among,
)
from edgekit.devices.linux.ssh_session import LIBRARY
from edgekit.devices.linux.version_records import (
    SHOWN_DIGEST,
    Version,
    VersionRecord,
    choose_model,
    choose_version,
)
from edgekit.devices.linux.versions import damaged_files, read_versions

_MOST_INPUT = 256 << 20
"""The most bytes of one input, because a device's record is not trusted."""


@dataclass(frozen=True)
class RollbackReport(Report):
    device: str
    measured_by: Measurer
    """What the times come from; only hardware's are the board's own."""
    version: Version
    """The version that is current now."""
    before: str | None
    """The digest of the version that was current."""
    seconds: float | None
    """Seconds of a test inference on zeros; None if the record names no inputs."""

    def headline(self) -> str:
        record = self.version.record
        return f"{record.model} on {self.device} is back at {record.digest[:SHOWN_DIGEST]}"


def rollback(
    device: KeepsVersions,
    model: str | None = None,
    *,
    to: str | None = None,
    events: Events = SILENT,
) -> RollbackReport:
    """Roll back to the previous version, or to the one whose digest begins with `to`.

    Its files are compared with their hashes first, and it is run once. If either fails, the
    current version stays.
    """
    with device.with_agent(events=events) as agent:
        versions = read_versions(agent.connection, agent.root)
        name = choose_model(versions, model, device.name)
        chosen = choose_version(versions, name, to, device.name)
        record = chosen.record
        with events.stage(f"check {record.digest[:SHOWN_DIGEST]} on {device.name}") as stage:
            try:
                _check_files(agent, record)
                seconds = _try_out(agent, record, events)
            except (BuildError, DeviceError) as error:
                agent.leased.log(_log_line(record, error=error))
                raise
            stage.result = "it runs" if seconds is not None else "its files are whole"
        agent.client.make_current(record, _log_line(record, seconds))
    before = next((v.record.digest for v in versions if v.current and v.record.model == name), None)
    return RollbackReport(device.name, agent.measured_by, chosen, before, seconds)


def _check_files(agent: ReadyAgent, record: VersionRecord) -> None:
    damaged = damaged_files(agent.connection, agent.root, record)
    if damaged:
        raise DeviceError(
            f"version {record.digest[:SHOWN_DIGEST]} of {record.model} on {agent.name} is damaged: "
            f"{', '.join(damaged)} is gone or not what was deployed",
            hint=f"deploy it again, or name another version with {option('to')}; what was current "
            "still is",
        )


def _try_out(agent: ReadyAgent, record: VersionRecord, events: Events) -> float | None:
    """Load and run the version on zeros, which are valid for any index."""
    import numpy as np

    from edgekit.base.arrays import numpy_dtype
    from edgekit.base.tensors import DTYPES

    if not record.inputs or any(entry.dtype not in DTYPES for entry in record.inputs):
        return None
    sizes = [math.prod(e.shape) * numpy_dtype(e.dtype).itemsize for e in record.inputs]
    if max(sizes) > _MOST_INPUT:
        return None
    inputs = [np.zeros(e.shape, numpy_dtype(e.dtype)) for e in record.inputs]
    messages = AgentMessages()
    folder = f"models/{record.digest}"
    for source in sources_among(file.name for file in record.files):
        runner = RunnerSource(folder, source, library_of(source), "")
        compile_on_device(agent.connection, agent.root, runner, events)
    library = f"{agent.root}/{folder}/{LIBRARY}"
    with WorkShown(events, agent.name) as work:
        done = agent.call(("run", library), [inputs], messages, work.hear)
    if done.status != 0 or len(messages.samples) != 1:
        raise agent.failure(done, messages, record.board)
    return messages.samples[0] / 1e9


def _log_line(
    record: VersionRecord,
    seconds: float | None = None,
    error: BuildError | DeviceError | None = None,
) -> str:
    return log_line(
        "rolled back", model=record.model, digest=record.digest, seconds=seconds, error=error
    )
