"""edgekit monitor: show a microcontroller's serial output."""

from __future__ import annotations

from typing import Any

import click

from edgekit.base.errors import UsageError
from edgekit.cli.console import Console
from edgekit.cli.device_options import remote_device_options
from edgekit.cli.options import Command, pass_console


@click.command("monitor", cls=Command)
@remote_device_options
@click.option("--listen", is_flag=True, help="Only listen: send no request.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="S",
    help="End after S seconds.  [default: never]",
)
@pass_console
def command(
    console: Console,
    where: dict[str, Any],
    listen: bool,
    seconds: float | None,
) -> None:
    """Show what a microcontroller sends, text and frames, until Ctrl-C."""
    from edgekit.api.choice import device_for_board
    from edgekit.devices.registry import find_device, known_devices
    from edgekit.devices.serial.monitor import watch
    from edgekit.verbs.flashing import check_microcontroller

    ws, name, board_name = console.workspace, where["device"], where["board"]
    if board_name is None and name is None and ws.data.project is None:
        raise UsageError(
            "no device is given",
            hint="add --device NAME, which `edgekit device list` shows, or --board NAME --twin",
        )
    if board_name is None and name is not None:
        known = find_device(name, known_devices(ws.data.project))
        board = known.board(ws.data.folder, console.events)
    else:
        board = ws.data.board(board_name)
    check_microcontroller(board)
    device = device_for_board(ws.setting, board, name, twin=where["twin"])
    for seen in watch(device.line(), ask=not listen, seconds=seconds):
        console.print(seen.words if seen.what == "text" else f"[{seen.what}] {seen.words}")
