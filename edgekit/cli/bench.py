"""edgekit bench: measure how fast a bundle is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.errors import UsageError
from edgekit.base.measurer import beside, figure, measurer_in_words
from edgekit.base.options import option
from edgekit.base.wording import (
    celsius,
    clock_rate,
    counted,
    duration,
    energy,
    few,
    measured,
    number,
    percent,
    size,
)
from edgekit.cli.accuracy_options import data_options, limit_options
from edgekit.cli.bench_matrix import MatrixOptions, run_matrix
from edgekit.cli.cluster_option import cluster_option
from edgekit.cli.console import Console
from edgekit.cli.device_options import several_devices_options
from edgekit.cli.input_options import at_option, input_options
from edgekit.cli.junit import junit_option
from edgekit.cli.options import Command, bundle_argument, grouped, json_option, pass_console
from edgekit.cli.several import Columns, on_several
from edgekit.cli.tune_options import Time
from edgekit.verbs.fleet import raise_if_any_failed

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceChoice, DeviceKeywords
    from edgekit.api.inputs import InputKeywords
    from edgekit.api.keywords import BenchKeywords
    from edgekit.api.workspace import Workspace
    from edgekit.base.shapes import Shape
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.sensors.state import BoardState
    from edgekit.verbs.bench_report import (
        BenchReport,
        BenchSummary,
        CountedSummary,
        KernelShare,
        Profile,
    )

_COLUMNS = ("median", "p90", "fastest", "runs", "threads", "loaded in", "memory")
_PROFILED = 10
_MOST_PROFILED = 1000
_SHOWN_KERNELS = 20


class _BenchCommand(Command):
    """Accepts `--profile BUNDLE`: BUNDLE is not the number of inferences to profile."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [
            f"--profile={_PROFILED}" if word == "--profile" and not following.isdigit() else word
            for word, following in zip(args, [*args, ""][1:], strict=True)
        ]
        return super().parse_args(ctx, words)


def _bench_keywords(profiled: int | None, **given: Any) -> Any:
    return {"profile": profiled or 0, **given}


_bench_options = grouped(
    "how",
    _bench_keywords,
    click.option(
        "--runs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Minimum number of runs.  [default: 30, or 10 with --seconds]",
    ),
    click.option(
        "--seconds",
        type=click.FloatRange(min=0),
        metavar="S",
        help="Minimum duration.  [default: 3, or 0 with --runs]",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
        metavar="N",
        help="Warm-up runs before the measured ones.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(min=1, max=1024),
        metavar="T",
        help="Threads of the model.  [default: one per physical core]",
    ),
    click.option(
        "--profile",
        "profiled",
        type=click.IntRange(1, _MOST_PROFILED),
        is_flag=False,
        flag_value=_PROFILED,
        metavar="[N]",
        help=f"Time each kernel in N further inferences.  [default: {_PROFILED}]",
    ),
    click.option(
        "--trace",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write a timeline of five of these inferences, for Perfetto or chrome://tracing.",
    ),
)


_matrix_options = grouped(
    "matrix",
    MatrixOptions,
    click.option(
        "--boards",
        metavar="B[,B…]",
        help="Take a MODEL instead of BUNDLE: build for these boards and measure on each.",
    ),
    click.option(
        "--offload",
        "offloads",
        metavar="O[,O…]",
        help="With --boards: auto, none, tuned, int8, or libraries; NAME+NAME is both.  "
        "[default: auto]",
    ),
    click.option(
        "--beside",
        metavar="R[,R…]",
        help="With --boards: time onnxruntime, mnn, litert in alternating rounds too.",
    ),
    click.option(
        "--search",
        type=Time(),
        metavar="TIME",
        help="With a tuned column: search this long (60s, 2m).  [default: 60s]",
    ),
    click.option(
        "--calibrate",
        "calibration",
        multiple=True,
        metavar="[NAME=]PATH",
        help="With an int8 column: samples, as for edgekit quantize.  [default: noise]",
    ),
    click.option(
        "--out",
        "-o",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="With --boards: the folder for the reports.  [default: build/MODEL-matrix]",
    ),
    click.option(
        "--again", is_flag=True, help="With --boards: measure again what is already done."
    ),
    *data_options(required=False, where="With --boards: "),
    *limit_options("With --boards: "),
    junit_option,
    cluster_option,
)


@click.command("bench", cls=_BenchCommand)
@bundle_argument
@_bench_options
@_matrix_options
@at_option
@input_options
@several_devices_options
@json_option
@pass_console
def command(
    console: Console,
    bundle: Path,
    how: BenchKeywords,
    matrix: MatrixOptions,
    sizes: list[dict[str, Shape]],
    given: InputKeywords,
    where: DeviceChoice,
) -> None:
    """Measure latency, throughput and memory of BUNDLE on a device of its board.

    With --boards, measure a model on several boards and with several offloads. The reports are
    Markdown, CSV, JSON and HTML. An interrupted matrix resumes where it stopped. With --data, the
    accuracy on a data set is beside the time.
    """
    from edgekit.api.device import bench_plan

    if how.get("trace") and (matrix.boards is not None or len(sizes) > 1 or where.is_several):
        raise UsageError(
            "a trace is of one bundle on one device at one size",
            hint=f"leave out --boards, --all and further --device and --at, or {option('trace')}",
        )
    if matrix.boards is not None:
        if given["inputs"] or sizes or where.names or where.every:
            raise UsageError(
                "a matrix runs the reference input on each board's own device",
                hint="leave out --input, --at, --device and --all, or leave out --boards",
            )
        run_matrix(console, bundle, matrix, bench_plan(how), where)
        return
    if matrix != MatrixOptions():
        raise UsageError(
            "--offload, --beside, --search, --calibrate, --out, --again, --data, --task, "
            "--at-least, --at-most, --junit and --cluster are for a matrix",
            hint="add --boards, or leave them out",
        )

    def work(
        ws: Workspace, opened: Bundle, on: DeviceKeywords, at: dict[str, Shape] | None = None
    ) -> BenchReport:
        return ws.bench(opened, **given, **on, **how, at=at)

    if len(sizes) > 1:
        _bench_sizes(console, bundle, sizes, where, work)
        return
    work = partial(work, at=sizes[0] if sizes else None)
    if where.is_several:
        columns = Columns(_COLUMNS, _cells, "measured")
        raise_if_any_failed(on_several(console, bundle, where, given, work, columns))
        return
    ws = console.workspace
    report = work(ws, ws.setting.bundle(bundle), where.keywords)

    def render() -> None:
        render_bench(console, report)
        if report.profile is not None:
            _render_profile(console, report, report.profile)
        if report.trace is not None:
            console.print(f"wrote {report.trace}: open it in https://ui.perfetto.dev")

    console.report(report, render)


def _bench_sizes(
    console: Console,
    bundle: Path,
    sizes: list[dict[str, Shape]],
    where: DeviceChoice,
    work: Callable[..., BenchReport],
) -> None:
    """Measure one size after another, and print a row for each."""
    from edgekit.verbs.bench_report import SizesReport

    if where.is_several:
        raise UsageError(
            "several devices measure one size at a time", hint="give --at once, or one device"
        )
    ws = console.workspace
    opened = ws.setting.bundle(bundle)
    report = SizesReport(tuple(work(ws, opened, where.keywords, at=at) for at in sizes))

    def render() -> None:
        first = report.sizes[0]
        console.heading(f"{first.bundle.name} on {first.device}")
        rows = [(one.sizes, *_cells(one)) for one in report.sizes]
        console.table(("sizes", *_COLUMNS), rows, right=_COLUMNS)
        for note in dict.fromkeys(note for one in report.sizes for note in one.notes):
            console.print(f"note: {note}")

    console.report(report, render)


def _cells(report: BenchReport) -> list[object]:
    return [
        *_times(report),
        report.runs,
        report.threads,
        None if report.load is None else duration(report.load),
        None if report.memory.model_peak is None else size(report.memory.model_peak),
    ]


def _times(report: BenchReport) -> list[str]:
    """Return the median with its measurer, p90 and the fastest: counts where those are compared."""
    counted = report.counted
    if counted is not None and counted.clock is None:
        values = (counted.median, counted.maximum, counted.minimum)
        return [measured(value, counted.unit) for value in values]
    return [_median(report), duration(report.p90), duration(report.minimum)]


def _median(report: BenchSummary) -> str:
    return figure(report.median, "seconds", report.measured_by)


def render_bench(console: Console, report: BenchSummary) -> None:
    """Print the table; `deploy` prints it too."""
    rows = [
        ("p90", report.p90),
        ("p99", report.p99),
        ("fastest", report.minimum),
        ("standard deviation", report.stdev),
    ]
    memory = report.memory
    if report.counted is not None:
        _render_counted(console, report, report.counted)
        return
    console.fields(
        [
            ("measured by", measurer_in_words(report.measured_by)),
            ("sizes", report.sizes or None),
            ("median", _median(report)),
            *((name, duration(value)) for name, value in rows),
            ("throughput", f"{number(report.throughput)} inferences/s"),
            ("runs", f"{report.runs:,} after {report.warmup:,} to warm up"),
            ("threads", report.threads),
            ("loaded in", None if report.load is None else duration(report.load)),
            ("memory of the model", _bytes(memory.model_peak)),
            ("memory of its process", _bytes(memory.process_peak)),
            ("CPU governor", report.governor),
            ("CPU frequency", _megahertz(report.frequency_mhz)),
            *_sensed(report),
        ]
    )
    for note in report.notes:
        console.print(f"note: {note}")


def _sensed(report: BenchSummary) -> list[tuple[str, object]]:
    """Return the rows for what the board's sensors measured."""
    rows: list[tuple[str, object]] = []
    power = report.power
    if power is not None:
        idle = "" if power.idle_watts is None else f", {power.idle_watts:.2f} W idle"
        above = (
            ""
            if power.joules_above_idle is None
            else f", {energy(power.joules_above_idle)} of it above idle"
        )
        rows += [
            ("power", f"{power.watts:.2f} W ({power.source}){idle}"),
            ("energy of an inference", f"{energy(power.joules)}{above}"),
        ]
    if report.temperature is not None:
        rows.append(("hottest", celsius(report.temperature)))
    if report.throttled:
        rows.append(("throttled", "yes: the times are not the board's best"))
    return rows if report.state is None else [*rows, *_state(report.state)]


def _state(state: BoardState) -> list[tuple[str, object]]:
    """Return the rows for the board's state, without CPU clocks, which have a row of their own."""
    rows: list[tuple[str, object]] = []
    if state.power_mode is not None:
        rows.append(("power mode", state.power_mode))
    clocks = [clock for clock in state.clocks if not clock.name.startswith("cpu")]
    rows += [(f"clock of {clock.name}", clock_rate(clock.mean * 1e6)) for clock in clocks]
    if state.gpu_memory is not None:
        rows.append(("memory on the GPU", size(state.gpu_memory)))
    return rows + [(fan.name, f"{fan.mean:.0f}") for fan in state.fans]


def _render_counted(console: Console, report: BenchSummary, counted: CountedSummary) -> None:
    """Print a microcontroller's benchmark, counted by the core's own counter."""
    spread = "" if counted.minimum == counted.maximum else f", from {counted.minimum:,}"
    fields: list[tuple[str, object]] = [
        ("measured by", measurer_in_words(report.measured_by)),
        (counted.unit, f"{counted.median:,}{spread}"),
    ]
    if counted.clock is not None:
        fields += [
            ("median", f"{_median(report)} at {clock_rate(counted.clock)}"),
            ("throughput", f"{number(report.throughput)} inferences/s"),
        ]
    fields += [
        ("runs", f"{report.runs:,} after {report.warmup:,} to warm up"),
        ("memory of the model", f"{_bytes(report.memory.process_peak)}, arena and stack"),
    ]
    console.fields(fields)
    if counted.steps:
        console.print()
        console.table(
            ("layer", counted.unit, "share"),
            [(step.name, f"{step.count:,}", percent(step.share)) for step in counted.steps],
            right=(counted.unit, "share"),
        )
    for note in report.notes:
        console.print(f"note: {note}")


def _render_profile(console: Console, report: BenchReport, profile: Profile) -> None:
    """Print rows that add up to the median."""
    median = report.median
    console.print()
    console.print(
        f"{beside(duration(median), report.measured_by)} in the median; each step's time is the "
        f"median of {counted(profile.inferences, 'profiled inference')}:"
    )

    def row(
        name: str,
        owner: str,
        calls: float | None,
        seconds: float,
        of_best: float | None = None,
        on_device: float | None = None,
    ) -> tuple[object, ...]:
        share = seconds / median if median else 0.0
        best = None if of_best is None else percent(of_best)
        device = None if on_device is None else duration(on_device)
        times = (*_signed(seconds, share), best)
        return name, owner, calls and number(calls), *times, *((device,) if has_device else ())

    shown, more = profile.kernels[:_SHOWN_KERNELS], profile.kernels[_SHOWN_KERNELS:]
    has_device = any(one.device_seconds is not None for one in profile.kernels)
    rows = [
        row(_title(one), one.owner, one.calls, one.seconds, one.of_best, one.device_seconds)
        for one in shown
    ]
    if more:
        calls, seconds = sum(one.calls for one in more), sum(one.seconds for one in more)
        rows.append(row(f"({len(more)} more)", "", calls, seconds))
    if profile.copies:
        rows.append(row("(copies and checks)", "", None, profile.copies))
    between = "(not in steps)" if profile.rest >= 0 else "(cost of profiling)"
    rows.append(row(between, "", None, profile.rest))
    if (limits := profile.limits) is not None:
        console.print(
            f"The hardware reaches {number(limits.float32 / 1e9)} GOP/s in float32, "
            f"{number(limits.integers / 1e9)} in small integers, and reads "
            f"{number(limits.bytes / 1e9)} GB/s of memory."
        )
    device = ("on the GPU",) if has_device else ()
    columns = ("layers", "run by", "calls", "time", "share", "of best", *device)
    numbers = ("calls", "time", "share", "of best", *device)
    console.table(columns, rows, right=numbers, spare=("calls", "of best"))


def _title(one: KernelShare) -> str:
    repeated = f" ({one.kind})" if one.kind in ("loop", "branch") else ""
    return few(one.layers or (one.name,)) + repeated


def _signed(seconds: float, share: float) -> tuple[str, str]:
    sign = "-" if seconds < 0 else ""
    return sign + duration(abs(seconds)), sign + percent(abs(share))


def _bytes(count: int | None) -> str | None:
    return None if count is None else f"{size(count)} at its peak"


def _megahertz(frequency: float | None) -> str | None:
    return None if frequency is None else clock_rate(frequency * 1e6)
