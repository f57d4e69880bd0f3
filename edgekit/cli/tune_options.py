"""Options of the commands that may search for better schedules before they build."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.errors import UsageError
from edgekit.cli.console import Console

if TYPE_CHECKING:
    from edgekit.building.request import BuildRequest
    from edgekit.devices.base import Device
    from edgekit.profiles.board import Board

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Time(click.ParamType[float]):
    """Seconds, or a number and its unit."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(s|m|min|h)?", str(value).strip())
        if found is None or float(found[1]) == 0:
            self.fail(f"{value!r} is no time such as 60s or 2m", param, ctx)
        return float(found[1]) * _UNITS[found[2] or ""]


def quick_tune_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives `tune_seconds: float | None` and `tune_again: bool`."""
    tune = click.option(
        "--quick-tune",
        "tune_seconds",
        type=Time(),
        metavar="TIME",
        help="Measure on the device for so long (60s, 2m) which ways of its kernels are fastest, "
        "and remember it.",
    )
    again = click.option(
        "--again", "tune_again", is_flag=True, help="Measure what was measured before as well."
    )
    return tune(again(function))


def check_quick_tune(tune_seconds: float | None, said: bool) -> None:
    """`said` is whether an option was given that only a search needs."""
    if tune_seconds is None and said:
        raise UsageError(
            "nothing is to be measured, and an option says how",
            hint="add --quick-tune 60s, or leave --device, --twin and --again out",
        )


def check_can_be_tuned(board: Board) -> None:
    """Before a device or a twin of it is looked for."""
    if board.kind == "baremetal":
        raise UsageError(
            f"--quick-tune measures kernels of Linux boards, and {board.name} gets a model in C",
            hint="leave it out: each layer gets the cheapest kernel anyway",
        )


def tuned(
    console: Console, request: BuildRequest, device: Device, seconds: float, again: bool
) -> BuildRequest:
    from edgekit.tuning.quick_tune import quick_tune

    request, _ = quick_tune(request, device, seconds, console.events, again=again)
    return request
