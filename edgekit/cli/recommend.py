"""edgekit recommend: which way to take with a model on a board."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli.device_options import device_for_board
from edgekit.cli.input_options import timeout_option
from edgekit.cli.options import (
    BOARD,
    Command,
    constant_option,
    json_option,
    model_argument,
    pass_console,
    shape_option,
)
from edgekit.console import Console
from edgekit.wording import amount, milliseconds, size

if TYPE_CHECKING:
    from edgekit.arrays import Array
    from edgekit.board import Board
    from edgekit.devices.base import Device
    from edgekit.recommend import Known, Option, Recommendation


@click.command("recommend", cls=Command)
@model_argument
@click.option(
    "--board",
    "-b",
    "boards",
    type=BOARD,
    multiple=True,
    metavar="NAME",
    help="For this board. May be repeated.  [default: the project's, else all]",
)
@click.option("--measure", is_flag=True, help="Try every option on a device, and go by that.")
@click.option("--twin", is_flag=True, help="With --measure: on the boards' emulated twins.")
@click.option("--store", "url", metavar="URL", help="Where measurements are, as edgekit results.")
@shape_option
@constant_option
@timeout_option
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    boards: tuple[str, ...],
    measure: bool,
    twin: bool,
    url: str | None,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
    timeout: float,
) -> None:
    """Say which ways there are for MODEL on each board, and which to try first.

    Without --measure it goes by what libraries take, by memory, and by what was measured before.
    """
    from edgekit.errors import UsageError
    from edgekit.project import choose_model, choose_store, find_project
    from edgekit.recommend import recommend

    if twin and not measure:
        raise UsageError("--twin is for --measure", hint="add --measure, or leave --twin out")
    project = find_project(Path.cwd())
    source = choose_model(project, model, shapes, constants)
    if not boards and project is not None and project.board is not None:
        boards = (project.board,)
    if measure and not boards:
        raise UsageError("--measure needs to know the board", hint="add --board NAME")

    def reach(board: Board) -> Device:
        return device_for_board(console, board, None, twin and board.kind != "local", timeout)

    done = recommend(
        source,
        boards,
        store=choose_store(project, url),
        reach=reach if measure else None,
        events=console.events,
    )
    console.report(done, lambda: _render(console, done))


def _render(console: Console, done: Recommendation) -> None:
    macs = "" if done.macs is None else f"{amount(done.macs)} multiply-accumulates, "
    console.print(f"{done.model}: {macs}{size(done.parameter_bytes)} of weights")
    if done.obstacle is not None:
        console.print(f"can't be built: {done.obstacle}")
        return
    for advice in done.boards:
        console.print()
        console.heading(f"{advice.board}: {advice.verdict}")
        console.print(f"needs {advice.memory}" if advice.fits else advice.memory)
        console.table(
            ("option", "can be had", "covers", "measured", "why", "try it with"),
            [_row(option) for option in advice.options],
            right=("covers", "measured"),
        )


def _row(option: Option) -> list[object]:
    return [
        option.name,
        "yes" if option.supported else "no",
        None if option.coverage is None else f"{option.coverage:.0%}",
        _known(option.known),
        "; ".join(option.reasons),
        option.command if option.supported else None,
    ]


def _known(known: Known | None) -> str | None:
    if known is None:
        return None
    if known.unit == "seconds":
        return f"{milliseconds(known.median)} on {known.device}"
    return f"{known.median:,.0f} {known.unit} on {known.device}"
