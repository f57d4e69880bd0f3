"""Devices of edgekit for fabric: connections and groups that log in as edgekit does.

from edgekit.fabric import connection, group

with connection("pi") as pi:
    pi.run("uname -a")
group(board="rpi4").put("settings.conf", "/etc/kitchen/")

docs/fabric.md shows more.
"""

from __future__ import annotations

from pathlib import Path

import fabric

from edgekit.api.choice import DeviceChoice, remote_devices
from edgekit.api.workspace import Workspace
from edgekit.fabric.connection import DeviceConnection

__all__ = ["DeviceConnection", "connection", "group"]


def connection(name: str, *, folder: str | Path = ".") -> DeviceConnection:
    """Return a connection to a known device; it is opened when it is used."""
    return DeviceConnection(Workspace(folder).device(name).device.shell())


def group(*names: str, board: str | None = None, folder: str | Path = ".") -> fabric.ThreadingGroup:
    """Return a group of the named devices, of all devices of a board, or of all known ones."""
    setting = Workspace(folder).setting
    choice = DeviceChoice(names or None, every=not names)
    return fabric.ThreadingGroup.from_connections(
        DeviceConnection(candidate.reach(setting.events).shell())
        for candidate in remote_devices(setting, board, choice)
    )
