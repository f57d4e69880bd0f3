"""edgekit run: show a bundle's outputs for an input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.errors import UsageError
from edgekit.base.measurer import beside
from edgekit.base.wording import counted, duration
from edgekit.cli.console import Console
from edgekit.cli.device_options import several_devices_options
from edgekit.cli.input_options import input_options
from edgekit.cli.options import (
    Command,
    bundle_argument,
    csv_option,
    grouped,
    json_option,
    pass_console,
)
from edgekit.cli.several import Columns, device_name, on_several
from edgekit.verbs.fleet import raise_if_any_failed

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceChoice, DeviceKeywords
    from edgekit.api.inputs import InputKeywords
    from edgekit.api.workspace import Workspace
    from edgekit.bundle.folder import Bundle
    from edgekit.models.ends.reading import Meaning
    from edgekit.verbs.run import OutputSummary, RunReport

_FEW = 3
"""The samples that are shown one by one, each with its tables."""


@click.command("run", cls=Command)
@bundle_argument
@input_options
@grouped(
    "shown",
    dict,
    click.option(
        "--out",
        "-o",
        type=click.Path(path_type=Path),
        metavar="DIR|FILE.npz",
        help="Write the outputs to this folder or file.",
    ),
    click.option(
        "--draw",
        type=click.Path(path_type=Path),
        metavar="DIR|FILE.png",
        help="Draw what was found into the image, as [postprocess] in edgekit.toml says.",
    ),
    click.option(
        "--top",
        type=click.IntRange(min=0),
        default=5,
        show_default=True,
        metavar="K",
        help="Show the K highest elements of outputs that are vectors.",
    ),
    click.option(
        "--keep-state/--no-state",
        default=True,
        show_default=True,
        help="Go on with the state that the sample before left, if the model keeps one.",
    ),
)
@several_devices_options
@csv_option
@json_option
@pass_console
def command(
    console: Console,
    bundle: Path,
    given: InputKeywords,
    shown: dict[str, Any],
    where: DeviceChoice,
) -> None:
    """Run BUNDLE on a device of its board, on your input or on its reference input.

    On several devices, --out has a folder for each.
    """
    if not where.is_several:
        ws = console.workspace
        report = ws.run_report(bundle, **shown, **given, **where.keywords)
        console.report(report, lambda: _render(console, report))
        return
    files: dict[str, Path | None] = {"out": shown.pop("out"), "draw": shown.pop("draw")}
    if files["out"] is not None and files["out"].suffix == ".npz":
        raise UsageError(
            "outputs of several devices do not fit into one file", hint="give -o a folder"
        )
    if files["draw"] is not None and files["draw"].suffix == ".png":
        raise UsageError("each device has an image of its own", hint="give --draw a folder")

    def work(ws: Workspace, opened: Bundle, on: DeviceKeywords) -> RunReport:
        of_device: dict[str, Any] = {
            name: folder and folder / device_name(on) for name, folder in files.items()
        }
        return ws.run_report(opened, **of_device, **shown, **given, **on)

    columns = Columns(("samples", "inference", "highest"), _cells, "ran")
    raise_if_any_failed(on_several(console, bundle, where, given, work, columns))


def _cells(report: RunReport) -> list[object]:
    seconds = sorted(sample.seconds for sample in report.samples)
    highest = [output for sample in report.samples for output in sample.outputs if output.top]
    first = _highest(highest[0]) if len(report.samples) == 1 and highest else None
    return [len(seconds), _shown(seconds[len(seconds) // 2], report), first]


def _shown(seconds: float, report: RunReport) -> str:
    return beside(duration(seconds), report.measured_by)


def _render(console: Console, report: RunReport) -> None:
    if report.reference:
        console.print("no --input was given: this is the bundle's reference input")
    if len(report.samples) > _FEW:
        _render_many(console, report)
        return
    for sample in report.samples:
        console.heading(f"{sample.name} on {report.device}, {_shown(sample.seconds, report)}")
        console.table(
            ["output", "type", "shape", "min", "max", "mean", "NaN or inf"],
            [_row(output) for output in sample.outputs],
            right=["min", "max", "mean", "NaN or inf"],
            spare=["NaN or inf", "mean"],
        )
        if sample.meaning is not None:
            _render_meaning(console, sample.meaning)
        for output in sample.outputs:
            if output.top and sample.meaning is None:
                console.print(f"highest of {output.name}:")
                console.table(
                    ["index", "value"],
                    [(score.index, f"{score.value:.6g}") for score in output.top],
                    right=["index", "value"],
                )
        for file in sample.files:
            console.print(f"wrote {file}")


def _render_meaning(console: Console, meaning: Meaning) -> None:
    if meaning.text is not None:
        console.print(f"text: {meaning.text}")
        return
    if not meaning.found:
        console.print("nothing was found")
        return
    boxes = any(one.box is not None for one in meaning.found)
    score = "share" if meaning.task == "mask" else "score"
    sides = ["left", "top", "right", "bottom"] if boxes else []
    console.table(
        ["name", score, *sides],
        [
            [one.name, f"{one.score:.3g}", *(f"{side:.1f}" for side in one.box or ())]
            for one in meaning.found
        ],
        right=[score, *sides],
    )


def _render_many(console: Console, report: RunReport) -> None:
    """Print a row for each sample, and the times of all."""
    seconds = sorted(sample.seconds for sample in report.samples)
    console.heading(
        f"{counted(len(seconds), 'sample')} on {report.device}: median "
        f"{_shown(seconds[len(seconds) // 2], report)}, slowest {_shown(seconds[-1], report)}"
    )
    if any(sample.meaning for sample in report.samples):
        found = [
            [sample.name, _shown(sample.seconds, report), sample.meaning.summary()]
            for sample in report.samples
            if sample.meaning is not None
        ]
        console.listing(("sample", "time", "found"), found, right=("time",))
        _say_files(console, report)
        return
    rows = [
        [
            sample.name,
            _shown(sample.seconds, report),
            output.name,
            _highest(output),
            *_row(output)[3:],
        ]
        for sample in report.samples
        for output in sample.outputs
    ]
    columns = ("sample", "time", "output", "highest", "min", "max", "mean", "NaN or inf")
    console.listing(
        columns,
        rows,
        right=("time", "min", "max", "mean", "NaN or inf"),
        spare=("NaN or inf", "mean", "min", "max"),
    )
    _say_files(console, report)


def _say_files(console: Console, report: RunReport) -> None:
    files = [file for sample in report.samples for file in sample.files]
    if files:
        folders = sorted({str(file.parent) for file in files})
        console.print(f"wrote {counted(len(files), 'file')} below {os.path.commonpath(folders)}")


def _highest(output: OutputSummary) -> str | None:
    return f"{output.top[0].value:.6g} at {output.top[0].index}" if output.top else None


def _row(output: OutputSummary) -> list[object]:
    numbers = (output.minimum, output.maximum, output.mean)
    return [
        output.name,
        output.dtype,
        "x".join(str(extent) for extent in output.shape) or "scalar",
        *(None if number is None else f"{number:.6g}" for number in numbers),
        output.nonfinite,
    ]
