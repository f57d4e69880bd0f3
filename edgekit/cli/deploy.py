"""edgekit deploy: build a model, run it on a device, verify and measure it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.errors import UsageError
from edgekit.base.measurer import figure
from edgekit.base.wording import counted, duration, joined, measured, size
from edgekit.bundle.manifest_oracle import NOTHING_PROVEN
from edgekit.cli.bench import render_bench
from edgekit.cli.build_options import outcome_options, to_be_built_with
from edgekit.cli.console import Console
from edgekit.cli.device_options import several_devices_options
from edgekit.cli.options import Command, json_option, pass_console
from edgekit.cli.tune_options import check_quick_tune, quick_tune_options
from edgekit.cli.verify import tolerance_options, vectors_in_words
from edgekit.project.file import MOST_KEPT

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceChoice
    from edgekit.api.keywords import BuildKeywords, TuneKeywords
    from edgekit.building.request import BuildResult
    from edgekit.devices.base import Installed
    from edgekit.verbs.bench_report import BenchSummary
    from edgekit.verbs.deploy import Deployed, DeployReport, FleetReport
    from edgekit.verbs.fleet import Outcome
    from edgekit.verbs.verify import VerifyReport


@click.command("deploy", cls=Command)
@to_be_built_with(
    click.option(
        "--no-verify",
        is_flag=True,
        help="Skip the oracle and the comparison: the outputs stay unverified.",
    )
)
@several_devices_options
@outcome_options(
    click.option("--no-bench", is_flag=True, help="Skip the benchmark."),
    click.option(
        "--keep",
        type=click.IntRange(1, MOST_KEPT),
        metavar="N",
        help="Versions of the model to keep on the device.  [default: 3, or the project's]",
    ),
    tolerance_options,
)
@quick_tune_options
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    how: BuildKeywords,
    where: DeviceChoice,
    outcome: dict[str, Any],
    search: TuneKeywords,
) -> None:
    """Build MODEL, run it on a device, compare its outputs with an oracle's, and time it.

    The oracle is another runtime that runs the same model file, such as onnxruntime."""
    from edgekit.verbs.fleet import raise_if_any_failed

    check_quick_tune(search)
    ws = console.workspace
    if where.is_several:
        if search["tune"] is not None:
            raise UsageError(
                "--quick-tune measures on one device, and several are named",
                hint="tune on one first: edgekit build --quick-tune 60s --device NAME",
            )
        fleet = ws.fleet(model, where.names, timeout=where.timeout, **outcome, **how)
        console.report(fleet, lambda: _render_fleet(console, fleet))
        raise_if_any_failed(fleet.devices)
        return
    report = ws.deploy(model, **outcome, **search, **how, **where.keywords)
    console.report(report, lambda: _render(console, report))


def _render(console: Console, report: DeployReport) -> None:
    verification, manifest = report.verification, report.build.bundle.manifest
    verdict = "not verified" if verification is None else "verified"
    console.heading(f"{manifest.model.name} is on {report.device}, {verdict}")
    fields = [_bundle(report.build), *_version(report)]
    measured = sum(bool(kernel.choice) for kernel in manifest.kernels)
    if measured:
        fields.append(("kernels", f"{measured} of {len(manifest.kernels)} as measured to be best"))
    if manifest.regions:
        from edgekit.backends.report import offload_in_words

        fields.append(("offloaded", offload_in_words(manifest.regions)))
    if verification is None:
        fields.append(("verified against", NOTHING_PROVEN))
    else:
        fields += [
            ("verified against", f"{verification.oracle} with {vectors_in_words(verification)}"),
            ("max error", _error(verification)),
            *(("no vector " + left.name, left.reason) for left in verification.left_out),
        ]
    if report.bench is not None:
        fields.append(_speed(report.bench))
    installed = report.installed
    if installed is not None:
        fields.append(("on the device", _installed(installed)))
    console.fields(fields)
    if report.bench is not None:
        console.print()
        render_bench(console, report.bench)


def _render_fleet(console: Console, report: FleetReport) -> None:
    name = report.build.bundle.manifest.model.name
    well = [outcome for outcome in report.devices if outcome.error is None]
    console.heading(f"{name} is on {len(well)} of {counted(len(report.devices), 'device')}")
    console.fields([_bundle(report.build), ("version", report.build.bundle.digest[:12])])
    console.table(
        ("device", "result", "max error", "median", "p90", "sent", "took"),
        [_row(outcome) for outcome in report.devices],
        right=("median", "p90", "sent", "took"),
        spare=("took", "sent", "p90"),
    )


def _row(outcome: Outcome[Deployed]) -> list[object]:
    done, took = outcome.report, duration(outcome.seconds)
    if done is None:
        return [outcome.device, "FAILED", None, None, None, None, took]
    verification, bench, installed = done.verification, done.bench, done.installed
    return [
        outcome.device,
        "not verified" if verification is None else "verified",
        None if verification is None else _error(verification),
        None if bench is None else _speed(bench)[1],
        None if bench is None or bench.counted is not None else duration(bench.p90),
        None if installed is None else size(installed.sent),
        took,
    ]


def _installed(installed: Installed) -> str:
    if not installed.agent:  # a microcontroller's firmware is all in one
        return f"{size(installed.model)} of firmware; {size(installed.sent)} sent now"
    parts = [f"{size(installed.model)} of model", f"{size(installed.agent)} of agent"]
    if installed.runtime:
        parts.append(f"{size(installed.runtime)} of TVM's runtime")
    return f"{joined(parts)}; {size(installed.sent)} sent now"


def _speed(bench: BenchSummary) -> tuple[str, str]:
    """Return the label and value of the speed: a count where an emulated core has no clock."""
    counted = bench.counted
    if counted is not None and counted.clock is None:
        return "median", measured(counted.median, counted.unit)
    return "median latency", figure(bench.median, "seconds", bench.measured_by)


def _bundle(build: BuildResult) -> tuple[str, str]:
    how = "from the cache" if build.from_cache else f"in {duration(build.seconds)}"
    return "bundle", f"{build.bundle.path} (built {how})"


def _version(report: DeployReport) -> list[tuple[str, str]]:
    if report.version is None:
        return []
    from edgekit.devices.linux.version_records import SHOWN_DIGEST

    before, digest = report.version.before, report.build.bundle.digest
    after = f", after {before[:SHOWN_DIGEST]}" if before not in (None, digest) else ""
    return [("version", f"{digest[:SHOWN_DIGEST]}{after}")]


def _error(verification: VerifyReport) -> str:
    output = max(verification.outputs, key=lambda output: output.max_error, default=None)
    if output is None or output.max_error == 0:
        return "none: every element is equal"
    return f"{output.error_in_words()} in {output.name} (allowed: {output.tolerance})"
