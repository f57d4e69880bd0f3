"""The choice of devices by the names that a user gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.options import option
from edgekit.base.wording import counted, did_you_mean
from edgekit.devices.base import DeviceBusy
from edgekit.devices.device import Device
from edgekit.devices.emulated import twin_of
from edgekit.devices.engine.device import engine_for, in_words
from edgekit.devices.joined import joined_entry
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS, LocalDevice
from edgekit.devices.registry import device_of
from edgekit.profiles.board import Board
from edgekit.project.devices import DeviceEntry
from edgekit.project.file import LOCAL


@dataclass(frozen=True)
class Candidate:
    """A device that a command is about, not connected yet."""

    name: str
    reach: Callable[[Events], Device]
    """Connect to the device; start it if it is a twin, and compile the agent."""


def devices_for(
    board: Board,
    names: Sequence[str] | None,
    devices: Mapping[str, DeviceEntry],
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
) -> tuple[Candidate, ...]:
    """Return the named devices, or all devices of the board."""
    if names is None and board.in_engine:
        names = [engine_for(board, None, timeout).name]
    if names is None:
        names = [entry.name for entry in devices.values() if entry.board == board.name]
        if not names:
            raise _none_known(board)

    def candidate(name: str) -> Candidate:
        if board.in_engine:
            engine_for(board, name, timeout)
        elif name != LOCAL:
            _named(board, name, devices)  # a misspelt name fails before any device is used
        elif not board.is_host:
            raise _not_local(board)
        return Candidate(
            name,
            lambda events: _prepared(device_for(board, name, devices, timeout, events), events),
        )

    return tuple(candidate(name) for name in names)


def _prepared(device: Device, events: Events) -> Device:
    device.prepare(events)
    return device


def device_for(
    board: Board,
    name: str | None = None,
    devices: Mapping[str, DeviceEntry] | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    events: Events = SILENT,
    *,
    twin: bool = False,
) -> Device:
    """Return the named device, or the first free one of the board.

    With `twin`, return the board's emulated twin, or the named one, and start it if necessary.
    """
    entries = devices or {}
    if board.in_engine:
        if twin:
            raise UsageError(
                f"{board.name} has no twin: its models run in {in_words(board)}",
                hint=f"leave {option('twin')} out",
            )
        return engine_for(board, name, timeout)
    if twin:
        return twin_of(_twin_called(name, board, entries), board, timeout, events)
    if name is not None and name != LOCAL:
        return device_of(_named(board, name, entries), board, timeout, events)
    if board.is_host:
        return LocalDevice(timeout)
    if name == LOCAL:
        raise _not_local(board)
    fitting = [entry for entry in entries.values() if entry.board == board.name]
    if not fitting:
        raise _none_known(board)
    entry = fitting[0] if len(fitting) == 1 else _first_free(board, fitting, events)
    return device_of(entry, board, timeout, events)


def _twin_called(name: str | None, board: Board, entries: Mapping[str, DeviceEntry]) -> str:
    """Return the name of the board's twin, or the given name if such a twin or entry exists."""
    from edgekit.twin.machine import all_twins

    if name is None:
        return board.name
    if name in entries and not entries[name].is_twin:
        raise UsageError(
            f"{option('twin')} and {option('device', name)} name two devices",
            hint="leave one of them out",
        )
    twins = [twin.name for twin in all_twins()]
    if name not in (*entries, *twins):
        raise no_such_twin(name, board.name)
    return name


def no_such_twin(name: str, board_name: str = "BOARD") -> UsageError:
    from edgekit.twin.machine import all_twins

    making = f"edgekit twin up {board_name} --name {name} makes one"
    twins = [twin.name for twin in all_twins()]
    return UsageError(f"there is no twin {name!r}", hint=did_you_mean(name, twins, making))


def _not_local(board: Board) -> UsageError:
    return UsageError(
        f"local is this machine, but the build is for {board.name}",
        hint="edgekit build MODEL --board local makes one for it",
    )


def _none_known(board: Board) -> DeviceError:
    adding = f"edgekit device add NAME --board {board.name}"
    adding += " user@host" if board.has_os else " --port /dev/ttyACM0"
    return DeviceError(
        f"no device is known for the board {board.name}",
        hint=f"{adding} adds one; {option('twin')} uses an emulated one",
    )


def _named(board: Board, name: str, entries: Mapping[str, DeviceEntry]) -> DeviceEntry:
    entry = entries.get(name) or joined_entry(name)
    if entry is None:
        raise UsageError(
            f"there is no device {name!r}",
            hint=did_you_mean(
                name, ("local", *entries), "`edgekit device list` shows them; local always exists"
            ),
        )
    if entry.board != board.name:
        raise UsageError(
            f"the device {name!r} has the board {entry.board}, but the build is for {board.name}",
            hint=f"edgekit build MODEL --board {entry.board} makes one for it",
        )
    return entry


def _first_free(board: Board, entries: list[DeviceEntry], events: Events) -> DeviceEntry:
    """Return the first device that answers and is free, else the first that answers."""
    busy: list[DeviceEntry] = []
    unreachable: list[str] = []
    # A twin is started for its name only, unless there is nothing else.
    real = [entry for entry in entries if not entry.is_twin]
    for entry in real:
        try:
            device_of(entry, board).check_free()
        except DeviceBusy as error:
            events.note(error.message)
            busy.append(entry)
        except DeviceError as error:
            events.warn(f"{entry.name} is skipped: {error.message}")
            unreachable.append(f"{entry.name}: {error.message}")
        else:
            events.warn(f"using {entry.name}, the first free one of {len(entries)}")
            return entry
    if busy:
        events.warn(f"using {busy[0].name}: none of {len(entries)} devices is free")
        return busy[0]
    if not real:
        return entries[0]
    raise DeviceError(
        f"none of the {counted(len(entries), 'device')} answers",
        hint="`edgekit device check NAME` says more about one of them",
        details=tuple(unreachable),
    )
