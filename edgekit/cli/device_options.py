"""Which device a command uses: --device, --twin, or the one that the board implies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli.options import DEVICE
from edgekit.console import Console

if TYPE_CHECKING:
    from edgekit.board import Board
    from edgekit.bundle import Bundle
    from edgekit.devices.base import Device


def device_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives `device_name: str | None` and `twin: bool`."""
    twin = click.option(
        "--twin", is_flag=True, help="Use the board's emulated twin; start it if need be."
    )
    device = click.option(
        "--device", "device_name", type=DEVICE, metavar="NAME", help="Which one to use."
    )
    return device(twin(function))


def device_for_board(
    console: Console, board: Board, device_name: str | None, twin: bool, timeout: float
) -> Device:
    from edgekit.devices.choice import device_for
    from edgekit.devices.registry import known_devices
    from edgekit.project import find_project

    known = known_devices(find_project(Path.cwd()))
    entries = {name: device.entry for name, device in known.items()}
    return device_for(board, device_name, entries, timeout, console.events, twin=twin)


def device_for_bundle(
    console: Console, bundle: Bundle, device_name: str | None, twin: bool, timeout: float
) -> Device:
    """A device of the board that the bundle was built for."""
    from edgekit.board import load_board
    from edgekit.devices.local import LocalDevice

    built_for = bundle.manifest.board
    if not twin and (device_name == "local" or (device_name is None and built_for.kind == "local")):
        return LocalDevice(timeout)
    return device_for_board(console, load_board(built_for.name), device_name, twin, timeout)
