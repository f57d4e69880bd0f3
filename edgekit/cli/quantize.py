"""edgekit quantize: convert a float model to int8 and report the accuracy cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.own_backends import own_backends
from edgekit.base.wording import number, percent, size
from edgekit.cli.console import Console
from edgekit.cli.options import (
    BOARD,
    Command,
    grouped,
    json_option,
    model_argument,
    pass_console,
    shape_option,
)

if TYPE_CHECKING:
    from edgekit.api.keywords import QuantizeKeywords
    from edgekit.verbs.quantization.loss import LayerLoss, OutputLoss
    from edgekit.verbs.quantize import QuantizeReport

_SHOWN = 10


_settings_options = grouped(
    "settings",
    dict,
    click.option(
        "--random",
        type=click.IntRange(1, 10_000),
        default=None,
        metavar="N",
        help="Calibrate with N samples of noise, to measure size and speed only.",
    ),
    click.option("--accept-noise", is_flag=True, help="Accept samples that look like noise."),
    click.option(
        "--labels",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A class number per sample, .npy or text, to report accuracy before and after.",
    ),
    click.option(
        "--per-channel/--per-tensor",
        default=True,
        show_default=True,
        help="Use one weight scale per output channel, or one per tensor.",
    ),
    click.option(
        "--method",
        type=click.Choice(("minmax", "entropy", "percentile")),
        default="minmax",
        show_default=True,
        help="How to compute ranges from the samples.",
    ),
    click.option(
        "--ends",
        type=click.Choice(("float", "int8")),
        default="float",
        show_default=True,
        help="The type of inputs and outputs.",
    ),
    click.option(
        "--symmetric/--asymmetric",
        default=None,
        help="Center activations on zero, as some libraries require.  "
        "[default: as the board requires]",
    ),
    click.option(
        "--exclude", multiple=True, metavar="NODE", help="Keep this node in float. May be repeated."
    ),
    shape_option,
)
"""Options that add `settings: QuantizeKeywords`."""


@click.command("quantize", cls=Command)
@model_argument
@click.option(
    "--calibrate",
    "-c",
    "calibration",
    multiple=True,
    metavar="[NAME=]PATH",
    help="Samples: a folder of images or .npy files, a file, or an .npz of many. May be repeated.",
)
@click.option(
    "--out",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file to write.  [default: MODEL-int8.onnx]",
)
@_settings_options
@click.option(
    "--board",
    "-b",
    type=BOARD,
    metavar="NAME",
    help="Quantize as the libraries for this board require.",
)
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    calibration: tuple[str, ...],
    out: Path | None,
    settings: QuantizeKeywords,
    board: str | None,
) -> None:
    """Quantize the float ONNX model MODEL to int8 and report the accuracy cost.

    onnxruntime measures the cost on the samples: how far the outputs are from the float model's,
    and which layers lose most.
    """
    report = console.workspace.quantize(model, calibration, out, board=board, **settings)
    console.report(report, lambda: _render(console, report))


def _render(console: Console, report: QuantizeReport) -> None:
    console.heading(f"{report.model} in int8")
    pairs = [
        ("model", str(report.out)),
        ("size", f"{size(report.bytes_after)}, was {size(report.bytes_before)}"),
        ("calibrated with", _samples(report)),
        *([("some of them", str(report.samples_file))] if report.samples_file else []),
        ("weights", f"one scale for each {'channel' if report.settings.per_channel else 'tensor'}"),
        ("activations", _activations(report)),
        ("left in float", ", ".join(report.in_float) or "nothing"),
    ]
    accuracy = report.losses.accuracy
    if accuracy is not None:
        pairs.append(("accuracy", f"{percent(accuracy.after)}, was {percent(accuracy.before)}"))
    console.fields(pairs)
    console.print()
    console.table(
        ["output", "signal to noise", "max error", "same first class"],
        [_output_row(output) for output in report.losses.outputs],
        right=["signal to noise", "max error", "same first class"],
    )
    if report.layers:
        console.print()
        console.heading("layers that lose most")
        console.table(
            ["layer", "operator", "loses", "signal to noise"],
            [_layer_row(layer) for layer in report.layers[:_SHOWN]],
            right=["loses", "signal to noise"],
        )


def _activations(report: QuantizeReport) -> str:
    if not report.settings.symmetric:
        return "asymmetric"
    uses = [one.symmetric_int8 for one in own_backends().values() if one.symmetric_int8]
    return "; ".join(["symmetric", *uses])


def _samples(report: QuantizeReport) -> str:
    what = "samples of noise" if report.calibrated_with_noise else "samples"
    return f"{report.samples} {what}, ranges by {report.settings.method}"


def _output_row(output: OutputLoss) -> list[object]:
    noise = output.signal_to_noise
    return [
        output.name,
        "exact" if noise is None else f"{noise:.1f} dB",
        number(output.max_error),
        None if output.top1_agreement is None else percent(output.top1_agreement),
    ]


def _layer_row(layer: LayerLoss) -> list[object]:
    return [layer.name, layer.operator, f"{layer.lost:.1f} dB", f"{layer.signal_to_noise:.1f} dB"]
