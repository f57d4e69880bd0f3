"""edgekit flash: write a bundle's firmware to a microcontroller."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.wording import clock_rate, duration, size
from edgekit.cli.console import Console
from edgekit.cli.device_options import device_options
from edgekit.cli.options import Command, bundle_argument, json_option, pass_console

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceKeywords


@click.command("flash", cls=Command)
@bundle_argument
@device_options
@click.option("--again", is_flag=True, help="Write it even if the device has it already.")
@json_option
@pass_console
def command(console: Console, bundle: Path, where: DeviceKeywords, again: bool) -> None:
    """Write the firmware of BUNDLE to a microcontroller and verify that it runs."""
    from edgekit.api.choice import device_for_bundle
    from edgekit.verbs.flashing import check_microcontroller, flash

    setting = console.workspace.setting
    opened = setting.bundle(bundle)
    check_microcontroller(opened.manifest.board)
    device = device_for_bundle(setting, opened, **where)
    report = flash(opened, device, console.events, again=again)

    def render() -> None:
        board = report.board
        done = f"has it, {size(report.written)} written" if report.written else "had it already"
        console.heading(f"{board.device} {done}, in {duration(report.seconds)}")
        console.fields(
            [
                ("firmware", board.firmware[:12]),
                ("core", f"{board.core} at {clock_rate(board.clock)}"),
                ("serial port", board.port),
                *(
                    ("model", f"{model.name}, {size(model.arena)} of arena")
                    for model in board.models
                ),
            ]
        )

    console.report(report, render)
