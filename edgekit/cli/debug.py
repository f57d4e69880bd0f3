"""edgekit debug: compare the layers of a model on a device with an oracle's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.wording import number
from edgekit.cli.build_options import to_be_built_with
from edgekit.cli.console import Console
from edgekit.cli.device_options import device_options_with_timeout
from edgekit.cli.options import MODEL_FILE, Command, json_option, pass_console
from edgekit.cli.verify import tolerance_options

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceKeywords
    from edgekit.api.keywords import BuildKeywords, ToleranceKeywords
    from edgekit.verbs.debug import DebugReport


@click.command("debug", cls=Command)
@to_be_built_with()
@click.option(
    "--of",
    type=MODEL_FILE,
    metavar="MODEL",
    help="The model that a bundle was built from.  [default: the project's]",
)
@click.option(
    "--against",
    type=MODEL_FILE,
    metavar="MODEL",
    help="The model that the oracle runs, with values of the same names.  [default: MODEL]",
)
@tolerance_options
@device_options_with_timeout
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    how: BuildKeywords,
    of: Path | None,
    against: Path | None,
    tolerance: ToleranceKeywords,
    where: DeviceKeywords,
) -> None:
    """Compare each layer of MODEL on a device with an oracle's, and name the first that is off.

    MODEL is a .onnx, .tflite or .pt2 file, or a bundle. The model is built several times, each time
    with some inner values as outputs.
    """
    from edgekit.verbs.debug import raise_if_off

    report = console.workspace.debug(
        model, of=of, against=against, tolerance=tolerance, **how, **where
    )
    console.report(report, lambda: _render(console, report))
    raise_if_off(report)


def _render(console: Console, report: DebugReport) -> None:
    console.heading(report.headline())
    rows = [
        (
            layer.layer,
            layer.operator,
            layer.compared.mismatch or number(layer.compared.max_error),
            number(layer.compared.largest),
            "agrees" if layer.compared.passed else "OFF",
        )
        for layer in report.layers
    ]
    columns = ("layer", "operator", "max error", "largest", "result")
    console.table(columns, rows, right=("max error", "largest"), spare=("operator",))
