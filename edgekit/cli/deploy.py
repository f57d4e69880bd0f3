"""edgekit deploy: from a model file to a device that is proven to compute it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli.bench import render_bench
from edgekit.cli.device_options import device_for_board, device_options
from edgekit.cli.input_options import timeout_option
from edgekit.cli.options import (
    Command,
    board_option,
    constant_option,
    json_option,
    model_argument,
    pass_console,
    shape_option,
    toolchain_option,
)
from edgekit.cli.verify import tolerance_options
from edgekit.console import Console
from edgekit.project import MOST_KEPT, choose_keep, find_project
from edgekit.wording import duration

if TYPE_CHECKING:
    from edgekit.arrays import Array
    from edgekit.deploy import DeployReport
    from edgekit.verify import VerifyReport


@click.command("deploy", cls=Command)
@model_argument
@board_option
@device_options
@toolchain_option
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the bundle goes.  [default: build/MODEL-BOARD]",
)
@click.option("--no-cache", is_flag=True, help="Neither use the build cache nor fill it.")
@click.option(
    "--no-verify", is_flag=True, help="Do not run the reference input and compare with the oracle."
)
@click.option("--no-bench", is_flag=True, help="Do not measure.")
@click.option(
    "--keep",
    type=click.IntRange(1, MOST_KEPT),
    metavar="N",
    help="How many versions of the model stay on the device.  [default: 3, or the project's]",
)
@shape_option
@constant_option
@tolerance_options
@timeout_option
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    board_name: str | None,
    device_name: str | None,
    twin: bool,
    toolchain_name: str | None,
    out: Path | None,
    no_cache: bool,
    no_verify: bool,
    no_bench: bool,
    keep: int | None,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
    rtol: float | None,
    atol: float | None,
    steps: int | None,
    timeout: float,
) -> None:
    """Build MODEL, run it on the device, compare with the oracle, measure."""
    from edgekit.build import default_destination
    from edgekit.deploy import SHORT_BENCH, DeployPlan, deploy
    from edgekit.request import make_request
    from edgekit.verify import Widening

    request = make_request(model, board_name, toolchain_name, shapes, constants)
    report = deploy(
        request,
        device_for_board(console, request.board, device_name, twin, timeout),
        out or default_destination(request),
        plan=DeployPlan(
            verify=not no_verify,
            widening=Widening(rtol, atol, steps),
            bench=None if no_bench else SHORT_BENCH,
            keep=choose_keep(find_project(Path.cwd()), keep),
        ),
        use_cache=not no_cache,
        events=console.events,
    )
    console.report(report, lambda: _render(console, report))


def _render(console: Console, report: DeployReport) -> None:
    verification, manifest = report.verification, report.build.bundle.manifest
    verdict = "not verified" if verification is None else "verified"
    how = "from the cache" if report.build.from_cache else f"in {duration(report.build.seconds)}"
    console.heading(f"{manifest.model.name} is on {report.device}, {verdict}")
    fields = [("bundle", f"{report.build.bundle.path} (built {how})"), *_version(report)]
    if verification is not None:
        fields += [
            ("verified against", f"{verification.oracle} with the reference input"),
            ("max error", _error(verification)),
        ]
    if report.bench is not None:
        fields.append(("median latency", f"{report.bench.median * 1000:.4g} ms"))
    console.fields(fields)
    if report.bench is not None:
        console.print()
        render_bench(console, report.bench)


def _version(report: DeployReport) -> list[tuple[str, str]]:
    if report.version is None:
        return []
    from edgekit.devices.version_records import SHOWN_DIGEST

    before, digest = report.version.before, report.build.bundle.digest
    after = f", after {before[:SHOWN_DIGEST]}" if before not in (None, digest) else ""
    return [("version", f"{digest[:SHOWN_DIGEST]}{after}")]


def _error(verification: VerifyReport) -> str:
    output = max(verification.outputs, key=lambda output: output.max_error, default=None)
    if output is None or output.max_error == 0:
        return "none: every element is equal"
    unit = " steps" if output.unit == "steps" else ""
    return f"{output.max_error:.3g}{unit} in {output.name} (allowed: {output.tolerance})"
