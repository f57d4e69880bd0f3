"""Options of the commands that can search for better schedules before they build."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.errors import UsageError
from edgekit.cli.console import Console

if TYPE_CHECKING:
    from edgekit.building.request import BuildRequest
    from edgekit.devices.device import Device
    from edgekit.profiles.board import Board

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Time(click.ParamType[float]):
    """A duration: seconds, or a number and its unit."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(s|m|min|h)?", str(value).strip())
        if found is None or float(found[1]) == 0:
            self.fail(f"{value!r} is no time such as 60s or 2m", param, ctx)
        return float(found[1]) * _UNITS[found[2] or ""]


def quick_tune_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `tune_seconds: float | None` and `tune_again: bool`."""
    tune = click.option(
        "--quick-tune",
        "tune_seconds",
        type=Time(),
        metavar="TIME",
        help="Search on the device for this long (60s, 2m) for the fastest kernels, and remember "
        "them.",
    )
    again = click.option(
        "--again", "tune_again", is_flag=True, help="Measure again what was measured before."
    )
    return tune(again(function))


def check_quick_tune(tune_seconds: float | None, needs_search: bool) -> None:
    """Refuse options that only a search needs (`needs_search`) without --quick-tune."""
    if tune_seconds is None and needs_search:
        raise UsageError(
            "--device, --twin and --again are for --quick-tune",
            hint="add --quick-tune 60s, or leave them out",
        )


def check_can_be_tuned(board: Board) -> None:
    """Refuse --quick-tune where it finds nothing, before a device is chosen."""
    from edgekit.building.products import product_of

    product = product_of(board)
    if product.tuner != "kernels":
        raise UsageError(
            f"--quick-tune measures kernels of Linux boards, and {board.name} gets "
            f"{product.in_words}",
            hint="leave it out: each layer gets the cheapest kernel anyway",
        )


def tuned(
    console: Console, request: BuildRequest, device: Device, seconds: float, again: bool
) -> BuildRequest:
    from edgekit.tuning.tune import quick_tune

    request, _ = quick_tune(request, device, seconds, console.events, again=again)
    return request
