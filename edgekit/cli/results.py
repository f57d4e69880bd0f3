"""edgekit results: show, compare, export and import measurements."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import click

from edgekit.base.measurer import figure, measurer_in_words
from edgekit.base.wording import celsius, counted, energy, measured, size
from edgekit.cli.console import Console
from edgekit.cli.options import (
    Group,
    csv_option,
    grouped,
    json_option,
    pass_console,
    store_option,
)
from edgekit.cli.tuning_results import tuning_command
from edgekit.store.comparing import Comparison
from edgekit.store.results import Evaluations, Listing, Transfer
from edgekit.store.runs import BenchRun, Evaluation, accuracy_in_words

_SHORT = 12
_METASCHEDULE = "metaschedule"
_PERCENT = re.compile(r"\s*(\d{1,4}(?:\.\d{1,3})?)\s*%?\s*")


class _Share(click.ParamType[float]):
    name = "percent"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = _PERCENT.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is no percentage such as 5 or 5%", param, ctx)
        return float(match[1]) / 100


@click.group("results", cls=Group)
def command() -> None:
    """Show the runs of `edgekit bench` and `deploy`, evaluations, and all tuning sessions."""


command.add_command(tuning_command)


_filter_options = grouped(
    "chosen",
    dict,
    click.option("--model", metavar="NAME", help="Only runs of this model."),
    click.option("--board", metavar="NAME", help="Only runs on this kind of board."),
    click.option("--device", metavar="NAME", help="Only runs on this device."),
    click.option(
        "--last",
        type=click.IntRange(1, 100_000),
        default=20,
        show_default=True,
        metavar="N",
        help="Number of runs, the latest first.",
    ),
)


@command.command("list")
@_filter_options
@store_option
@csv_option
@json_option
@pass_console
def list_command(
    console: Console,
    chosen: dict[str, Any],
    url: str | None,
) -> None:
    """List benchmark runs, the latest first.

    The accuracy is that of the same build, as `edgekit evaluate` last measured it.
    """
    listing = console.workspace.at_store(url).results(**chosen)
    console.report(listing, lambda: _render_list(console, listing))


@command.command("accuracy")
@_filter_options
@store_option
@csv_option
@json_option
@pass_console
def accuracy_command(console: Console, chosen: dict[str, Any], url: str | None) -> None:
    """List what `edgekit evaluate` measured, the latest first."""
    listing = console.workspace.at_store(url).accuracy(**chosen)
    console.report(listing, lambda: _render_accuracy(console, listing))


@command.command("show")
@click.argument("run")
@store_option
@json_option
@pass_console
def show_command(console: Console, run: str, url: str | None) -> None:
    """Show one run: RUN is its id, a prefix of it, or `latest`."""
    found = console.workspace.at_store(url).result(run)
    console.report(found, lambda: _render_run(console, found))


@command.command("compare")
@click.argument("before")
@click.argument("after", default="latest")
@click.option(
    "--fail-above",
    type=_Share(),
    metavar="PERCENT",
    help="Fail if AFTER is slower by more than this, such as 5 or 5%, beyond noise.",
)
@store_option
@json_option
@pass_console
def compare_command(
    console: Console, before: str, after: str, fail_above: float | None, url: str | None
) -> None:
    """Compare two runs: ids, or `previous` or `best` for BEFORE.  [default for AFTER: latest]

    `previous` and `best` are chosen among the runs before AFTER, of the same model and device.
    """
    from edgekit.store.results import raise_if_regressed

    comparison = console.workspace.at_store(url).compare(before, after)
    console.report(comparison.to_dict(), lambda: _render_comparison(console, comparison))
    if fail_above is not None:
        raise_if_regressed(comparison, fail_above)


@command.command("export")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice([_METASCHEDULE]),
    help="Write tuned kernels as MetaSchedule's JSON database into the folder PATH.",
)
@store_option
@json_option
@pass_console
def export_command(console: Console, path: Path, form: str | None, url: str | None) -> None:
    """Write all runs to PATH: a .json with every sample, or a .csv table."""
    store = console.workspace.at_store(url).data.store
    if form == _METASCHEDULE:
        from edgekit.tuning.metaschedule_files import export_metaschedule

        tuned = export_metaschedule(
            path, console.workspace.at_store(url).data.store, console.events
        )
        console.report(
            tuned, lambda: console.print(f"wrote {counted(tuned.runs, 'record')} to {tuned.path}")
        )
        return
    from edgekit.store.results import export_results

    done = export_results(path, store, console.events)
    console.report(done, lambda: console.print(f"wrote {counted(done.runs, 'run')} to {done.path}"))


@command.command("import")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@store_option
@json_option
@pass_console
def import_command(console: Console, path: Path, url: str | None) -> None:
    """Import runs from PATH, a .json that `export` wrote, or tuned kernels from a folder with
    MetaSchedule's JSON database."""
    store = console.workspace.at_store(url).data.store
    if path.is_dir():
        from edgekit.tuning.metaschedule_files import import_metaschedule

        tuned = import_metaschedule(
            path, console.workspace.at_store(url).data.store, console.events
        )
        console.report(tuned, lambda: console.print(_imported(tuned, "record")))
        return
    from edgekit.store.results import import_results

    done = import_results(path, store, console.events)
    console.report(done, lambda: console.print(_imported(done, "run")))


def _imported(done: Transfer, what: str) -> str:
    known = done.runs - done.new
    there = f", {known:,} known already" if known else ""
    return f"{counted(done.new, f'new {what}')} in {done.store}{there}"


def _render_list(console: Console, listing: Listing) -> None:
    if not listing.runs:
        console.print(f"nothing is in {listing.store} yet: `edgekit bench BUNDLE` measures")
        return
    console.listing(
        (
            *("run", "when", "model", "board", "device", "offload", "median", "p90"),
            *("accuracy", "threads", "for"),
        ),
        [
            (
                run.id[:_SHORT],
                _when(run.measured_at, whole=console.csv_path is not None),
                run.build.model,
                run.build.board,
                run.device,
                ", ".join(run.build.offload) or "none",
                figure(run.median, run.unit, run.measured_by),
                measured(run.p90, run.unit),
                _accuracy(listing.accuracy_of(run)),
                run.conditions.threads,
                run.purpose,
            )
            for run in listing.runs
        ],
        right=("median", "p90", "accuracy", "threads"),
        spare=("for", "threads", "board", "p90", "offload"),
    )


def _accuracy(evaluation: Evaluation | None) -> str | None:
    return None if evaluation is None else accuracy_in_words(evaluation.figures)


def _render_accuracy(console: Console, listing: Evaluations) -> None:
    if not listing.evaluations:
        console.print(f"nothing is in {listing.store} yet: `edgekit evaluate` measures")
        return
    console.listing(
        ("when", "model", "board", "device", "offload", "data", "samples", "median", "figures"),
        [
            (
                _when(one.measured_at, whole=console.csv_path is not None),
                one.build.model,
                one.build.board,
                one.device,
                ", ".join(one.build.offload) or "none",
                one.data,
                one.samples,
                figure(one.seconds, "seconds", one.measured_by),
                ", ".join(each.in_words() for each in one.figures),
            )
            for one in listing.evaluations
        ],
        right=("samples", "median"),
        spare=("samples", "board", "offload", "data"),
    )


def _when(measured_at: str, *, whole: bool) -> str:
    """Return the day and the time of this year's runs, and the date of others, as `ls` does."""
    if whole:
        return measured_at[:16].replace("T", " ")
    is_this_years = measured_at[:4] == time.strftime("%Y")
    return measured_at[5:16].replace("T", " ") if is_this_years else measured_at[:10]


def _render_run(console: Console, run: BenchRun) -> None:
    conditions = run.conditions
    console.heading(f"{run.build.model} on {run.device}, {run.measured_at[:16].replace('T', ' ')}")
    console.fields(
        [
            ("run", run.id),
            ("measured for", f"{run.purpose}, from {run.host}"),
            ("board", run.build.board),
            ("offload", ", ".join(run.build.offload) or "none"),
            ("sizes", run.sizes or None),
            ("bundle", run.build.digest[:_SHORT]),
            ("edgekit, TVM", f"{run.build.edgekit_version}, {run.build.tvm_version}"),
            ("compiler", run.build.compiler),
            ("measured by", measurer_in_words(run.measured_by)),
            ("median", figure(run.median, run.unit, run.measured_by)),
            ("p90", measured(run.p90, run.unit)),
            ("p99", measured(run.p99, run.unit)),
            ("fastest", measured(run.minimum, run.unit)),
            # Counts of a microcontroller have no samples.
            *([("standard deviation", measured(run.stdev, run.unit))] * bool(run.samples)),
            *(
                [("runs", f"{len(run.samples):,} after {run.warmup:,} to warm up")]
                * bool(run.samples)
            ),
            ("energy", None if run.joules is None else f"{energy(run.joules)} an inference"),
            ("threads", conditions.threads),
            ("memory of the model", None if run.model_peak is None else size(run.model_peak)),
            ("CPU governor", conditions.governor),
            ("temperature", _degrees(conditions.temperature_c)),
        ]
    )
    for note in run.notes:
        console.print(f"note: {note}")


def _render_comparison(console: Console, comparison: Comparison) -> None:
    before, after = comparison.before, comparison.after
    console.heading(comparison.headline())
    console.table(
        ("", "run", "when", "median", "p90", "offload", "threads"),
        [
            (
                title,
                run.id[:_SHORT],
                run.measured_at[:16].replace("T", " "),
                figure(run.median, run.unit, run.measured_by),
                measured(run.p90, run.unit),
                ", ".join(run.build.offload) or "none",
                run.conditions.threads,
            )
            for title, run in (("before", before), ("after", after))
        ],
        right=("median", "p90", "threads"),
    )
    console.print(comparison.spread_in_words())
    for obstacle in comparison.obstacles:
        console.print(f"not comparable: {obstacle}")
    for remark in comparison.remarks:
        console.print(f"note: {remark}")


def _degrees(temperature: float | None) -> str | None:
    return None if temperature is None else celsius(temperature)
