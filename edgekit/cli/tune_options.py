"""Options of the commands that can search for better schedules before they build."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from edgekit.base.errors import UsageError
from edgekit.cli.options import grouped

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


def _tune_keywords(tune_seconds: float | None, tune_again: bool) -> Any:
    return {"tune": tune_seconds, "tune_again": tune_again}


quick_tune_options = grouped(
    "search",
    _tune_keywords,
    click.option(
        "--quick-tune",
        "tune_seconds",
        type=Time(),
        metavar="TIME",
        help="Search on the device for this long (60s, 2m) for the fastest kernels, and remember "
        "them.",
    ),
    click.option(
        "--again", "tune_again", is_flag=True, help="Measure again what was measured before."
    ),
)
"""Options that add `search`: the keywords `tune` and `tune_again`."""


def check_quick_tune(search: Mapping[str, Any], needs_search: bool = False) -> None:
    """Refuse options that only a search needs (`needs_search`) without --quick-tune."""
    if search["tune"] is None and (needs_search or search["tune_again"]):
        raise UsageError(
            "--device, --twin and --again are for --quick-tune",
            hint="add --quick-tune 60s, or leave them out",
        )
