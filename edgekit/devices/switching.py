"""Switches a device on or off for its user, who is told if another one has it."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.options import option
from edgekit.devices.base import DeviceBusy
from edgekit.devices.power import PowerAction, power_of, switch_power
from edgekit.devices.registry import device_of
from edgekit.profiles.board import Board
from edgekit.project.devices import DeviceEntry

_OUTCOMES = {"on": "is switched on", "off": "is switched off", "cycle": "was switched off and on"}


@dataclass(frozen=True)
class Switched:
    name: str
    action: PowerAction

    @property
    def outcome(self) -> str:
        return _OUTCOMES[self.action]


def switch_device(
    entry: DeviceEntry, action: PowerAction, board: Board | None, events: Events = SILENT
) -> Switched:
    """Switch the device's power. With its board, DeviceBusy if the device is in use."""
    if board is not None and action != "on" and power_of(entry) is not None:
        try:
            device_of(entry, board).check_free()
        except DeviceBusy as error:
            raise DeviceBusy(error.message, hint=f"wait, or add {option('force')}") from error
        except DeviceError as error:
            events.note(error.message)  # it is off, or hangs: that is what the switch is for
    switch_power(entry, action, events)
    return Switched(entry.name, action)
