"""edgekit recommend: recommend how to run a model on a board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.wording import amount, percent, size
from edgekit.cli.console import Console
from edgekit.cli.input_options import timeout_option
from edgekit.cli.options import (
    BOARD,
    Command,
    binding_options,
    grouped,
    json_option,
    model_argument,
    pass_console,
)
from edgekit.cli.table import wrapped
from edgekit.cli.tune_options import check_quick_tune, quick_tune_options

if TYPE_CHECKING:
    from edgekit.advice.words import Advice, Option, Recommendation
    from edgekit.api.keywords import BindingKeywords, TuneKeywords


_WIDTH = 100
_QUESTIONS = ("supported?", "faster?", "hot spot?")


@click.command("recommend", cls=Command)
@model_argument
@click.option(
    "--board",
    "-b",
    "boards",
    type=BOARD,
    multiple=True,
    metavar="NAME",
    help="The board. May be repeated.  [default: the project's, else all]",
)
@grouped(
    "measuring",
    dict,
    click.option("--measure", is_flag=True, help="Measure every option on a device first."),
    click.option("--twin", is_flag=True, help="With --measure: use the boards' emulated twins."),
    timeout_option,
    quick_tune_options,
)
@click.option("--store", "url", metavar="URL", help="The store, as for edgekit results.")
@binding_options
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    boards: tuple[str, ...],
    measuring: dict[str, Any],
    url: str | None,
    binding: BindingKeywords,
) -> None:
    """List the options for running MODEL on each board, and which to try first.

    Without --measure, decide by library support, memory and earlier measurements.
    """
    from edgekit.advice.words import SearchPlan
    from edgekit.base.errors import UsageError

    search: TuneKeywords = measuring.pop("search")
    seconds = search["tune"]
    if not measuring["measure"]:
        for given, option in ((measuring["twin"], "--twin"), (seconds is not None, "--quick-tune")):
            if given:
                hint = f"add --measure, or leave {option} out"
                raise UsageError(f"{option} is for --measure", hint=hint)
    check_quick_tune(search)
    done = console.workspace.at_store(url).recommend(
        model,
        boards,
        search=None if seconds is None else SearchPlan(seconds, search["tune_again"]),
        **measuring,
        **binding,
    )
    console.report(done, lambda: _render(console, done))


def _render(console: Console, done: Recommendation) -> None:
    macs = "" if done.macs is None else f"{amount(done.macs)} multiply-accumulates, "
    console.print(f"{done.model}: {macs}{size(done.parameter_bytes)} of weights")
    if done.obstacle is not None:
        console.print(f"can't be built: {done.obstacle}")
        return
    if done.hot_spot is not None:
        share = f"{percent(done.hot_spot.share)} of the multiply-accumulates"
        console.print(f"hot spot: {done.hot_spot.operator}, {share}")
    for advice in done.boards:
        _render_advice(console, advice, alone=len(done.boards) == 1)
    if len(done.boards) > 1:
        console.print()
        console.print("with one --board, the reasons are shown too")


def _render_advice(console: Console, advice: Advice, *, alone: bool) -> None:
    console.print()
    console.heading(f"{advice.board}: {advice.verdict}")
    console.print(f"needs {advice.memory}" if advice.fits else advice.memory)
    console.table(
        ("option", "available", "takes", "measured", "on"),
        [_row(option) for option in advice.options],
        right=("takes", "measured"),
    )
    if alone:
        for option in advice.options:
            _render_reasons(console, option)


def _row(option: Option) -> list[object]:
    return [
        option.name,
        "yes" if option.supported else "no",
        None if option.coverage is None else percent(option.coverage),
        None if option.known is None else option.known.in_words,
        None if option.known is None else option.known.device,
    ]


def _render_reasons(console: Console, option: Option) -> None:
    """Print the questions in a column, the wrapped answers, and the command on one line."""
    console.print()
    console.heading(option.name)
    answers = option.answers
    pairs = zip(_QUESTIONS, (answers.supported, answers.faster, answers.hot_spot), strict=True)
    for name, text in (*pairs, *(("", reason) for reason in option.reasons)):
        indent = f"  {name.ljust(len(_QUESTIONS[0]))}  "
        for line in wrapped(text, _WIDTH - len(indent), break_words=False):
            console.print(f"{indent}{line}")
            indent = " " * len(indent)
    if option.supported and option.command:
        console.print(f"  {option.command}")
