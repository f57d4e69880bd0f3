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
from edgekit.wording import duration

if TYPE_CHECKING:
    from edgekit.arrays import Array
    from edgekit.deploy import DeployReport
    from edgekit.verify import OutputReport


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
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
    rtol: float | None,
    atol: float | None,
    steps: int | None,
    timeout: float,
) -> None:
    """Build MODEL, run it on the device, compare with the oracle, measure."""
    from edgekit.build import default_destination
    from edgekit.deploy import deploy
    from edgekit.request import make_request
    from edgekit.verify import Widening

    request = make_request(model, board_name, toolchain_name, shapes, constants)
    report = deploy(
        request,
        device_for_board(console, request.board, device_name, twin, timeout),
        out or default_destination(request),
        widening=Widening(rtol, atol, steps),
        use_cache=not no_cache,
        events=console.events,
    )
    console.report(report, lambda: _render(console, report))


def _render(console: Console, report: DeployReport) -> None:
    verification, manifest = report.verification, report.build.bundle.manifest
    how = "from the cache" if report.build.from_cache else f"in {duration(report.build.seconds)}"
    worst = max(verification.outputs, key=lambda output: output.max_error, default=None)
    console.heading(f"{manifest.model.name} runs on {verification.device}, verified")
    console.fields(
        [
            ("bundle", f"{report.build.bundle.path} (built {how})"),
            ("verified against", f"{verification.oracle} with the reference input"),
            ("max error", _error(worst)),
            ("median latency", f"{report.bench.median * 1000:.4g} ms"),
        ]
    )
    console.print()
    render_bench(console, report.bench)


def _error(output: OutputReport | None) -> str:
    if output is None or output.max_error == 0:
        return "none: every element is equal"
    unit = " steps" if output.unit == "steps" else ""
    return f"{output.max_error:.3g}{unit} in {output.name} (allowed: {output.tolerance})"
