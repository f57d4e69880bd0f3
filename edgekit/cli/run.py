"""edgekit run: show a bundle's outputs for an input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.errors import UsageError
from edgekit.base.wording import duration
from edgekit.cli.console import Console
from edgekit.cli.device_options import (
    device_for_bundle,
    only,
    several_devices_options,
    several_for_bundle,
)
from edgekit.cli.input_options import (
    ChosenSamples,
    choose_samples,
    input_option,
    nonfinite_option,
    timeout_option,
)
from edgekit.cli.options import Command, bundle_argument, json_option, pass_console

if TYPE_CHECKING:
    from edgekit.base.events import Events
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.choice import Candidate
    from edgekit.devices.device import Device
    from edgekit.verbs.run import OutputSummary, RunReport


@click.command("run", cls=Command)
@bundle_argument
@input_option
@nonfinite_option
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    metavar="DIR|FILE.npz",
    help="Write the outputs to this folder or file.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="K",
    help="Show the K highest elements of outputs that are vectors.",
)
@several_devices_options
@timeout_option
@json_option
@pass_console
def command(
    console: Console,
    bundle: Path,
    input_texts: tuple[str, ...],
    allow_nonfinite: bool,
    out: Path | None,
    top: int,
    device_names: tuple[str, ...] | None,
    every: bool,
    twin: bool,
    timeout: float,
) -> None:
    """Run BUNDLE on a device of its board, on your input or on its reference input.

    On several devices, --out has a folder for each.
    """
    from edgekit.bundle.folder import open_bundle
    from edgekit.verbs.run import run

    opened = open_bundle(bundle)
    chosen = choose_samples(opened, input_texts, allow_nonfinite)
    several = several_for_bundle(console, opened, device_names, every, twin, timeout)
    if several is not None:
        _run_on_several(console, opened, several, chosen, out, top)
        return
    report = run(
        opened,
        device_for_bundle(console, opened, only(device_names), twin, timeout),
        samples=chosen.samples,
        total=chosen.count,
        out=out,
        top=top,
        events=console.events,
    )
    console.report(report, lambda: _render(console, report))


def _run_on_several(
    console: Console,
    bundle: Bundle,
    devices: Sequence[Candidate],
    chosen: ChosenSamples,
    out: Path | None,
    top: int,
) -> None:
    from edgekit.cli.several import Columns, on_several
    from edgekit.verbs.run import run

    if out is not None and out.suffix == ".npz":
        raise UsageError(
            "outputs of several devices do not fit into one file", hint="give -o a folder"
        )
    samples = None if chosen.samples is None else tuple(chosen.samples)

    def work(device: Device, events: Events) -> RunReport:
        return run(
            bundle,
            device,
            samples=samples,
            total=chosen.count,
            out=None if out is None else out / device.name,
            top=top,
            events=events,
        )

    columns = Columns(("samples", "inference", "highest"), _cells, "ran")
    on_several(console, bundle, devices, work, columns)


def _cells(report: RunReport) -> list[object]:
    seconds = sorted(sample.seconds for sample in report.samples)
    highest = [
        output.top[0] for sample in report.samples for output in sample.outputs if output.top
    ]
    first = (
        f"{highest[0].value:.6g} at {highest[0].index}"
        if len(report.samples) == 1 and highest
        else None
    )
    return [len(seconds), duration(seconds[len(seconds) // 2]), first]


def _render(console: Console, report: RunReport) -> None:
    if report.reference:
        console.print("no --input was given: this is the bundle's reference input")
    for sample in report.samples:
        console.heading(f"{sample.name} on {report.device}, {duration(sample.seconds)}")
        console.table(
            ["output", "type", "shape", "min", "max", "mean", "NaN or inf"],
            [_row(output) for output in sample.outputs],
            right=["min", "max", "mean", "NaN or inf"],
        )
        for output in sample.outputs:
            if output.top:
                console.print(f"highest of {output.name}:")
                console.table(
                    ["index", "value"],
                    [(score.index, f"{score.value:.6g}") for score in output.top],
                    right=["index", "value"],
                )
        for file in sample.files:
            console.print(f"wrote {file}")


def _row(output: OutputSummary) -> list[object]:
    numbers = (output.minimum, output.maximum, output.mean)
    return [
        output.name,
        output.dtype,
        "x".join(str(extent) for extent in output.shape) or "scalar",
        *(None if number is None else f"{number:.6g}" for number in numbers),
        output.nonfinite,
    ]
