"""edgekit monitor: show a microcontroller's serial output."""

from __future__ import annotations

import click

from edgekit.cli.console import Console
from edgekit.cli.device_options import device_for_board, remote_device_options
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
    device_name: str | None,
    board_name: str | None,
    twin: bool,
    listen: bool,
    seconds: float | None,
) -> None:
    """Show lines of text and frames as they arrive, until Ctrl-C."""
    from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS
    from edgekit.devices.registry import find_device, known_devices
    from edgekit.devices.serial.monitor import watch
    from edgekit.verbs.flashing import check_microcontroller

    workspace = console.workspace
    if board_name is None and device_name is not None:
        board_name = find_device(device_name, known_devices(workspace.project)).entry.board
    board = workspace.board(board_name)
    check_microcontroller(board)
    device = device_for_board(console, board, device_name, twin, DEFAULT_TIMEOUT_SECONDS)
    for seen in watch(device.line(), ask=not listen, seconds=seconds):
        console.print(seen.words if seen.what == "text" else f"[{seen.what}] {seen.words}")
