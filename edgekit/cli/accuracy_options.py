"""The options that say what a model is evaluated on, and what its figures must reach."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import click

from edgekit.base.errors import UsageError
from edgekit.cli.options import Decorator
from edgekit.verbs.evaluation.report import TaskName


def _bounds(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float]:
    """Parse `top1=0.70`."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, bound = text.partition("=")
        problem = _problem(name, bound, found)
        if problem is not None:
            raise UsageError(
                f"{parameter.opts[0]} {text}: {problem}",
                hint=f"write a figure and a number, such as {parameter.opts[0]} top1=0.7",
            )
        found[name] = float(bound)
    return found


def _problem(name: str, bound: str, found: dict[str, float]) -> str | None:
    if not name:
        return "it names no figure"
    if name in found:
        return f"{name} has a limit already"
    try:
        is_number = math.isfinite(float(bound))
    except ValueError:
        is_number = False
    return None if is_number else f"{bound or 'nothing'!r} is no number"


def data_options(*, required: bool, where: str = "") -> tuple[Decorator, ...]:
    """Return --data and --task. `where` begins the help of commands that evaluate on the side."""
    return (
        click.option(
            "--data",
            type=click.Path(path_type=Path),
            required=required,
            metavar="DIR",
            help=f"{where}The data set with its labels.",
        ),
        click.option(
            "--task",
            type=click.Choice(get_args(TaskName)),
            required=required,
            help=f"{where}What the model does, which decides the data's layout and the figures.",
        ),
    )


def limit_options(where: str = "") -> tuple[Decorator, ...]:
    """Return --at-least and --at-most."""
    return (
        click.option(
            "--at-least",
            multiple=True,
            metavar="NAME=X",
            callback=_bounds,
            help=f"{where}Fail if this figure is smaller, such as top1=0.70. May be repeated.",
        ),
        click.option(
            "--at-most",
            multiple=True,
            metavar="NAME=X",
            callback=_bounds,
            help=f"{where}Fail if this figure is larger. May be repeated.",
        ),
    )
