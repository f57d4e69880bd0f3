"""edgekit tune: search for faster kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.wording import duration, milliseconds
from edgekit.cli.console import Console
from edgekit.cli.device_options import DEVICES, check_devices, only, several_devices
from edgekit.cli.input_options import timeout_option
from edgekit.cli.options import (
    Command,
    board_option,
    constant_option,
    json_option,
    model_argument,
    offload_option,
    one_layer_option,
    pass_console,
    shape_option,
    toolchain_option,
)
from edgekit.cli.tune_c import tune_steps
from edgekit.cli.tune_options import Time

if TYPE_CHECKING:
    import numpy as np

    from edgekit.devices.choice import Candidate
    from edgekit.profiles.board import Board
    from edgekit.tuning.standing import KernelOutcome
    from edgekit.tuning.tune import TuneReport

_COLUMNS = ("calls", "by its rule", "now", "gain", "trials", "failed", "how", "kernel")
_NUMBERS = ("calls", "by its rule", "now", "gain", "trials", "failed")
_TRIALS_WITHOUT_A_WORD = 1000


@click.command("tune", cls=Command)
@model_argument
@board_option
@toolchain_option
@offload_option
@one_layer_option
@shape_option
@constant_option
@click.option(
    "--trials",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Candidates for the whole model, those of earlier searches included.  "
    f"[default: {_TRIALS_WITHOUT_A_WORD}, or as many as fit in --time]",
)
@click.option(
    "--time", "seconds", type=Time(), metavar="TIME", help="Search for so long (90s, 30m, 8h)."
)
@click.option(
    "--device",
    "--devices",
    "device_names",
    type=DEVICES,
    metavar="NAME[,NAME…]",
    help="Where to measure.  [default: what the farm lends, or the board's first free device]",
)
@click.option("--all", "every", is_flag=True, help="Every known device of the board.")
@click.option("--twin", is_flag=True, help="Use the board's emulated twin; start it if need be.")
@click.option("--again", is_flag=True, help="Measure what was measured before as well.")
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 2), default=0, help="Of what is tried by chance."
)
@timeout_option
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    board_name: str | None,
    toolchain_name: str | None,
    offload: tuple[str, ...] | None,
    one_layer_each: bool,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, np.ndarray],
    trials: int | None,
    seconds: float | None,
    device_names: tuple[str, ...] | None,
    every: bool,
    twin: bool,
    again: bool,
    seed: int,
    timeout: float,
) -> None:
    """Measure the kernels of MODEL in many ways on devices, and remember the fastest of each:
    every later build uses them.

    Ctrl-C keeps what was measured, and the same command goes on where it was.
    """
    from edgekit.building.choose import make_request
    from edgekit.devices.registry import known_devices
    from edgekit.project.file import find_project
    from edgekit.tuning.tune import Effort, tune
    from edgekit.tuning.tune_devices import Wish, pool_for

    check_devices(device_names, every, twin)
    request = make_request(
        *(model, board_name, toolchain_name, shapes, constants),
        offload=offload,
        one_layer_each=one_layer_each,
        events=console.events,
    )
    if request.board.kind == "baremetal":
        several = several_devices(request.board, device_names, every, twin, timeout)
        one = (device_names, twin, timeout)
        tune_steps(console, request, several or _only(request.board, *one), trials, seconds, again)
        return
    known = known_devices(find_project(Path.cwd()))
    entries = {name: device.entry for name, device in known.items()}
    pool = pool_for(
        request.board,
        Wish(device_names, twin, every),
        entries,
        timeout,
        f"tuning {request.source.name}",
        console.events,
    )
    if trials is None and seconds is None:
        trials = _TRIALS_WITHOUT_A_WORD
    report = tune(request, pool, Effort(trials, seconds, again, seed), console.events)
    console.report(report, lambda: _render(console, report))


def _only(
    board: Board, device_names: tuple[str, ...] | None, twin: bool, timeout: float
) -> tuple[Candidate, ...]:
    from edgekit.devices.choice import Candidate, device_for
    from edgekit.devices.registry import known_devices
    from edgekit.project.file import find_project

    known = known_devices(find_project(Path.cwd()))
    entries = {name: device.entry for name, device in known.items()}
    device = device_for(board, only(device_names), entries, timeout, twin=twin)
    return (Candidate(device.name, lambda events: device),)


def _render(console: Console, report: TuneReport) -> None:
    console.heading(f"{report.model} on {', '.join(report.devices)}, {duration(report.seconds)}")
    errors = ", ".join(f"{count} {kind}" for kind, count in sorted(report.errors.items()))
    pairs = [
        ("trials", f"{report.trials}, and {report.known} known from earlier searches"),
        ("failed", errors or "none"),
        ("ended by", report.ended),
    ]
    if report.best_us:
        own, best = (milliseconds(us / 1e6) for us in (report.own_us, report.best_us))
        gain = report.own_us / report.best_us
        pairs.append(("all kernels", f"{own} by the rules, {best} now: {gain:.2f}x"))
    whose = f"a twin of {report.board}" if report.emulated else report.board
    pairs.append(("used by", f"every build for {whose}, without being asked"))
    console.fields(pairs)
    console.table(_COLUMNS, [_row(kernel) for kernel in report.kernels], right=_NUMBERS)


def _row(kernel: KernelOutcome) -> tuple[str, ...]:
    def shown(microseconds: float | None) -> str:
        return "" if microseconds is None else milliseconds(microseconds / 1e6)

    better = kernel.choice is not None
    return (
        str(kernel.calls),
        shown(kernel.own_us),
        shown(kernel.best_us) if better else "",
        f"{kernel.gain:.2f}x" if better else "",
        str(kernel.trials),
        str(kernel.failed),
        kernel.choice.words if kernel.choice is not None else "its rule",
        kernel.words,
    )
