"""Devices for a search: lent by the farm, or chosen by the user and served during the search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgekit.agent.build import build_runtime
from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.devices.choice import Candidate, device_for, devices_for
from edgekit.devices.device import Device
from edgekit.devices.keeper_client import FarmDown, this_user
from edgekit.devices.keeper_messages import DeviceStatus, FarmStatus
from edgekit.farm.control import fair_priority, farm_status, note_lease
from edgekit.farm.health import SERVING
from edgekit.profiles.architecture import architecture
from edgekit.profiles.board import Board
from edgekit.project.devices import DeviceEntry
from edgekit.project.file import LOCAL
from edgekit.rpc.protocol import TrackerAddress, parse_tracker
from edgekit.rpc.server import ServePlan
from edgekit.tuning.messages import LocalPlan
from edgekit.tuning.servers import Plan, Pool, are_emulated, served

HELD_SECONDS = 60.0
"""The longest time that a device is held, so that others get their turn."""


@dataclass(frozen=True)
class DeviceSelection:
    """The devices that the user chose."""

    names: tuple[str, ...] | None = None
    twin: bool = False
    every: bool = False


@contextmanager
def pool_for(
    board: Board,
    selection: DeviceSelection,
    known: Mapping[str, DeviceEntry],
    timeout: float,
    purpose: str,
    events: Events = SILENT,
) -> Iterator[Pool]:
    lent = None if selection.twin else _farm_pool(board, selection, purpose, events)
    if lent is not None:
        yield lent
        return
    devices = _devices(board, selection, known, timeout, events)
    with pool_of(board, devices, events) as pool:
        yield pool


@contextmanager
def pool_of(board: Board, devices: Sequence[Device], events: Events = SILENT) -> Iterator[Pool]:
    """Serve devices that were chosen."""
    with scratch_directory(cache_dir()) as workspace:

        def plans(tracker: TrackerAddress) -> Sequence[tuple[str, Plan]]:
            return [(d.name, _plan(board, d, tracker, workspace, events)) for d in devices]

        with served(plans, events) as pool:
            yield pool


@contextmanager
def pool_with(
    board: Board, device: Device, purpose: str, events: Events = SILENT
) -> Iterator[Pool]:
    """Take one device: lent by the farm if it has it, or else served."""
    lent = _farm_pool(board, DeviceSelection((device.name,)), purpose, events)
    if lent is not None:
        yield lent
        return
    with pool_of(board, [device], events) as pool:
        yield pool


def _farm_pool(
    board: Board, selection: DeviceSelection, purpose: str, events: Events
) -> Pool | None:
    """Return the farm's devices, None if no farm is up or it has no such device."""
    try:
        status = farm_status()
    except FarmDown:
        return None
    members = [
        device
        for device in status.devices
        if device.board == board.name and device.key and device.state in SERVING
    ]
    if selection.names is not None:
        named = [device for device in members if device.name in selection.names]
        if not named:
            return None
        missing = sorted(set(selection.names) - {device.name for device in named})
        if missing:
            raise UsageError(
                f"the farm has {named[0].name} but not {missing[0]}",
                hint="name devices of the farm only, or end it: edgekit farm down",
            )
        if len({device.key for device in members}) < len(members) and len(named) < len(members):
            events.warn("the farm lends any of its devices of that board, not only those named")
    else:
        named = members
    if not named:
        return None
    keys = {device.key for device in named}
    lent = {device.name: bool(device.is_emulated) for device in members if device.key in keys}
    return _lent(status, named, are_emulated(lent), purpose, events)


def _lent(
    status: FarmStatus,
    devices: Sequence[DeviceStatus],
    is_emulated: bool,
    purpose: str,
    events: Events,
) -> Pool:
    owner = this_user()
    names = {device.port: device.name for device in devices if device.port}

    def name_of(port: int) -> str:
        if port not in names:
            names.update({d.port: d.name for d in farm_status().devices if d.port})
        return names.get(port, "a device of the farm")

    def taken(port: int, offer: str) -> None:
        try:
            note_lease(port, offer, owner, purpose, 2 * HELD_SECONDS)
            at_port = [device for device in farm_status().devices if device.port == port]
        except EdgekitError as error:
            events.note(f"the farm does not know of the lease: {error.message}")
            return
        # The search began before this device had come up, which says what it is.
        for device in at_port:
            if device.is_emulated != is_emulated:
                kind = "emulated" if device.is_emulated else "not emulated"
                raise UsageError(
                    f"{device.name} has come up and is {kind}, unlike what the search began with",
                    hint="run the same command again: `edgekit farm status` names the devices",
                )

    return Pool(
        tracker=parse_tracker(status.tracker),
        names=tuple(device.name for device in devices),
        keys=tuple(device.key for device in devices),
        name_of=name_of,
        priority=fair_priority(owner),
        taken=taken,
        is_emulated=is_emulated,
    )


def _devices(
    board: Board,
    selection: DeviceSelection,
    known: Mapping[str, DeviceEntry],
    timeout: float,
    events: Events,
) -> list[Device]:
    if selection.names is None and not selection.every:
        device = device_for(board, None, known, timeout, events, twin=selection.twin)
        return [device]
    if selection.twin:
        (name,) = selection.names or (None,)
        device = device_for(board, name, known, timeout, events, twin=True)
        return [device]
    found: list[Device] = []
    problems: list[DeviceError] = []
    candidates: tuple[Candidate, ...] = devices_for(board, selection.names, known, timeout)
    for candidate in candidates:
        try:
            found.append(candidate.reach(events))
        except DeviceError as error:
            problems.append(error)
            events.warn(f"{candidate.name} is left out: {error.message}")
    if not found:
        raise problems[0]
    return found


def _plan(
    board: Board, device: Device, tracker: TrackerAddress, workspace: Path, events: Events
) -> Plan:
    if device.name == LOCAL:
        return local_plan(board, device.name, tracker, workspace, events)
    return ServePlan(device.agent(), device.name, tracker)


def local_plan(
    board: Board, name: str, tracker: TrackerAddress, workspace: Path, events: Events = SILENT
) -> LocalPlan:
    """Return the plan for this host, under any name."""
    from edgekit.profiles.board import toolchain_of

    toolchain = toolchain_of(board)
    agent = build_runtime(toolchain, architecture(toolchain.triple), events=events)
    return LocalPlan(agent.program, name, tracker, workspace)
