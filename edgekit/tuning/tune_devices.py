"""Devices for a search: lent by the farm, or chosen by the user and served during the search."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.agent.build import AGENT, build_agent
from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.devices.choice import Candidate, device_for, devices_for
from edgekit.devices.keeper_client import FarmDown, this_user
from edgekit.farm.control import fair_priority, farm_status, note_lease
from edgekit.farm.health import SERVING
from edgekit.farm.status import DeviceStatus, FarmStatus
from edgekit.project.file import LOCAL
from edgekit.rpc.protocol import TrackerAddress, parse_tracker
from edgekit.rpc.server import ServePlan
from edgekit.tuning.servers import Plan, served
from edgekit.tuning.work import LocalPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgekit.devices.device import Device
    from edgekit.profiles.board import Board
    from edgekit.project.devices import DeviceEntry

HELD_SECONDS = 60.0
"""The longest time that a device is held, so that others get their turn."""


@dataclass(frozen=True)
class Pool:
    """Devices behind a tracker."""

    tracker: TrackerAddress
    names: tuple[str, ...]
    keys: tuple[str, ...]
    """The key that each runner requests from the tracker."""
    name_of: Callable[[int], str]
    """A function from a device's port to its name."""
    priority: int = 1
    taken: Callable[[int, str], None] = lambda port, offer: None
    """A callback for a runner that got a device: its port, and the tracker's offer."""
    twins: frozenset[str] = frozenset()
    """Names of emulated boards, whose times are for twins only."""

    @property
    def is_emulated(self) -> bool:
        return all(name in self.twins for name in self.names)


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
        twins = frozenset(name for name in lent.names if name in known and known[name].is_twin)
        yield replace(lent, twins=twins)
        return
    devices = _devices(board, selection, known, timeout, events)
    with scratch_directory(cache_dir()) as workspace:

        def plans(tracker: TrackerAddress) -> Sequence[tuple[str, Plan]]:
            return [
                (name, _plan(board, name, device, tracker, workspace, events))
                for name, device in devices
            ]

        with served_pool(plans, events) as pool:
            yield replace(pool, twins=frozenset(name for name, d in devices if d.is_emulated))


@contextmanager
def served_pool(
    plans: Callable[[TrackerAddress], Sequence[tuple[str, Plan]]], events: Events = SILENT
) -> Iterator[Pool]:
    """Serve devices; the key of each is its name."""
    lock = threading.Lock()

    def told(name: str, text: str) -> None:
        with lock:
            events.warn(f"{name}: {text}")

    with served(plans, told) as servers:
        names = tuple(dict.fromkeys(servers.names.values()))
        yield Pool(servers.tracker, names, names, servers.name_of)


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
    return _lent(status, named, purpose, events)


def _lent(
    status: FarmStatus, devices: Sequence[DeviceStatus], purpose: str, events: Events
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
        except EdgekitError as error:
            events.note(f"the farm does not know of the lease: {error.message}")

    return Pool(
        tracker=parse_tracker(status.tracker),
        names=tuple(device.name for device in devices),
        keys=tuple(device.key for device in devices),
        name_of=name_of,
        priority=fair_priority(owner),
        taken=taken,
    )


def _devices(
    board: Board,
    selection: DeviceSelection,
    known: Mapping[str, DeviceEntry],
    timeout: float,
    events: Events,
) -> list[tuple[str, Device]]:
    if selection.names is None and not selection.every:
        device = device_for(board, None, known, timeout, events, twin=selection.twin)
        return [(device.name, device)]
    if selection.twin:
        (name,) = selection.names or (None,)
        device = device_for(board, name, known, timeout, events, twin=True)
        return [(device.name, device)]
    found: list[tuple[str, Device]] = []
    problems: list[DeviceError] = []
    candidates: tuple[Candidate, ...] = devices_for(board, selection.names, known, timeout)
    for candidate in candidates:
        try:
            found.append((candidate.name, candidate.reach(events)))
        except DeviceError as error:
            problems.append(error)
            events.warn(f"{candidate.name} is left out: {error.message}")
    if not found:
        raise problems[0]
    return found


def _plan(
    board: Board,
    name: str,
    device: Device,
    tracker: TrackerAddress,
    workspace: Path,
    events: Events,
) -> Plan:
    if name == LOCAL:
        return local_plan(board, name, tracker, workspace, events)
    return ServePlan(device.agent(), name, tracker)


def local_plan(
    board: Board, name: str, tracker: TrackerAddress, workspace: Path, events: Events = SILENT
) -> LocalPlan:
    """Return the plan for this host, under any name."""
    from edgekit.profiles.board import toolchain_of

    toolchain = toolchain_of(board)
    agent = build_agent(toolchain, toolchain.triple.partition("-")[0], events=events)
    (program,) = (file.path for file in agent.files if file.path.name == AGENT)
    return LocalPlan(program, name, tracker, workspace)
