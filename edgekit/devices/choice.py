"""From the names that a user gives to the device that they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.devices.local import DEFAULT_TIMEOUT_SECONDS, LocalDevice
from edgekit.errors import DeviceError, UsageError
from edgekit.wording import did_you_mean

if TYPE_CHECKING:
    from edgekit.board import Board
    from edgekit.devices.base import Device
    from edgekit.project import DeviceEntry


def device_for(
    board: Board,
    name: str | None = None,
    devices: Mapping[str, DeviceEntry] | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
) -> Device:
    """The device to deploy to; `name` is one of `devices`, those that the project knows."""
    known = devices or {}
    if name is not None and name != "local":
        if name not in known:
            raise UsageError(
                f"there is no device {name!r}",
                hint=did_you_mean(
                    name, ("local", *known), "[devices] in edgekit.toml lists them; local is always"
                ),
            )
        if known[name].board != board.name:
            raise UsageError(
                f"the device {name!r} is a {known[name].board}, and the build is for {board.name}",
                hint=f"say --board {known[name].board}",
            )
    if board.kind == "local":
        return LocalDevice(timeout)
    if board.kind == "baremetal":
        raise UsageError(
            f"{board.name} is a bare-metal board, and this edgekit builds for Linux boards only",
            hint="`edgekit boards` says which is which; local is this machine",
        )
    raise DeviceError(
        f"edgekit does not deploy to {board.name} yet: of all boards, only local is also a device",
        hint=f"`edgekit build MODEL --board {board.name}` makes its bundle, to copy over yourself",
    )
