"""edgekit verify: compare a bundle's outputs with an oracle's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.errors import UsageError
from edgekit.cli.console import Console
from edgekit.cli.device_options import (
    device_for_bundle,
    only,
    several_devices_options,
    several_for_bundle,
)
from edgekit.cli.input_options import (
    choose_samples,
    input_option,
    nonfinite_option,
    timeout_option,
)
from edgekit.cli.options import (
    MODEL_FILE,
    Command,
    bundle_argument,
    constant_option,
    json_option,
    pass_console,
    shape_option,
)

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.events import Events
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.choice import Candidate
    from edgekit.devices.device import Device
    from edgekit.verbs.verify import OutputReport, VerifyReport


def tolerance_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `rtol: float | None`, `atol: float | None` and `steps: int | None`."""
    for option in (
        click.option(
            "--steps",
            type=click.IntRange(min=0),
            metavar="N",
            help="Allowed error of quantised outputs, in steps.",
        ),
        click.option(
            "--atol",
            type=click.FloatRange(min=0),
            metavar="X",
            help="Allowed absolute error of other outputs.",
        ),
        click.option(
            "--rtol",
            type=click.FloatRange(min=0),
            metavar="X",
            help="Allowed relative error of each element of other outputs.",
        ),
    ):
        command = option(command)
    return command


@click.command("verify", cls=Command)
@bundle_argument
@input_option
@nonfinite_option
@click.option(
    "--model",
    type=MODEL_FILE,
    metavar="MODEL",
    help="The bundle's model file, which --input needs to compute the expected outputs.",
)
@shape_option
@constant_option
@tolerance_options
@several_devices_options
@timeout_option
@json_option
@pass_console
def command(
    console: Console,
    bundle: Path,
    input_texts: tuple[str, ...],
    allow_nonfinite: bool,
    model: Path | None,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
    rtol: float | None,
    atol: float | None,
    steps: int | None,
    device_names: tuple[str, ...] | None,
    every: bool,
    twin: bool,
    timeout: float,
) -> None:
    """Compare BUNDLE's outputs on a device of its board with an independent oracle's.

    Without --input, compare with the expected outputs in the bundle.
    """
    from edgekit.bundle.folder import open_bundle
    from edgekit.models.model import open_model
    from edgekit.verbs.verify import Widening, raise_if_failed, verify

    if input_texts and model is None:
        raise UsageError(
            "--input needs the model, to compute the expected outputs",
            hint="add --model with the file that the bundle was built from",
        )
    if model is not None and not input_texts:
        raise UsageError(
            "--model does nothing without --input: the bundle holds its expected outputs",
            hint="add --input FILE, or leave out --model",
        )
    opened = open_bundle(bundle)
    chosen = choose_samples(opened, input_texts, allow_nonfinite)
    source = None if model is None else open_model(model, shapes, constants)
    several = several_for_bundle(console, opened, device_names, every, twin, timeout)
    samples = chosen.samples if several is None or chosen.samples is None else tuple(chosen.samples)

    def work(device: Device, events: Events) -> VerifyReport:
        return verify(
            opened,
            device,
            samples=samples,
            source=source,
            widening=Widening(rtol, atol, steps),
            total=chosen.count,
            events=events,
        )

    if several is not None:
        _verify_on_several(console, opened, several, work)
        return
    device = device_for_bundle(console, opened, only(device_names), twin, timeout)
    report = work(device, console.events)
    console.report(report, lambda: render_verification(console, report))
    raise_if_failed(report)


def _verify_on_several(
    console: Console,
    bundle: Bundle,
    devices: Sequence[Candidate],
    work: Callable[[Device, Events], VerifyReport],
) -> None:
    from edgekit.cli.several import Columns, on_several
    from edgekit.verbs.verify import raise_if_failed

    def proven(device: Device, events: Events) -> VerifyReport:
        report = work(device, events)
        raise_if_failed(report)
        return report

    def cells(report: VerifyReport) -> list[object]:
        largest = max(report.outputs, key=lambda output: output.max_error)
        return [len(report.samples), _row(largest, report)[3], largest.name, str(largest.tolerance)]

    columns = Columns(("samples", "max error", "in", "allowed"), cells, "verified")
    on_several(console, bundle, devices, proven, columns)


def render_verification(console: Console, report: VerifyReport) -> None:
    """Print the table; `deploy` prints it too."""
    verdict = "verified" if report.passed else "not the same numbers"
    count = len(report.samples)
    what = vectors_in_words(report) if report.reference else f"{count} sample" + "s" * (count > 1)
    console.heading(f"{verdict}: {report.device} against {report.oracle}, {what}")
    console.table(
        ["output", "type", "verdict", "max error", "allowed", "outside", "top-1", "worst element"],
        [_row(output, report) for output in report.outputs],
        right=["max error", "outside", "top-1"],
    )
    failed = [sample.name for sample in report.samples if not sample.passed]
    if failed:
        kind = "reference vectors" if report.reference else "samples"
        console.print(f"{len(failed)} of {count} {kind} failed: {_first_few(failed)}")
    for left in report.left_out:
        console.print(f"no reference vector {left.name!r}: {left.reason}")


def vectors_in_words(report: VerifyReport) -> str:
    """Return the count and names of the reference vectors that were compared."""
    count = len(report.samples)
    names = ", ".join(sample.name for sample in report.samples)
    return f"{count} reference vector{'s' * (count > 1)} ({names})"


def _row(output: OutputReport, report: VerifyReport) -> list[object]:
    unit = " steps" if output.unit == "steps" else ""
    return [
        output.name,
        output.dtype,
        "pass" if output.passed else "FAIL",
        f"{output.max_error:.3g}{unit}",
        str(output.tolerance),
        f"{output.out_of_tolerance}/{output.elements}",
        None if output.top1_agreement is None else f"{output.top1_agreement:.1%}",
        output.mismatch or _worst(output, report),
    ]


def _worst(output: OutputReport, report: VerifyReport) -> str:
    if output.worst is None:
        return "all equal"
    worst = output.worst
    where = f"{output.worst_sample} " if len(report.samples) > 1 else ""
    found = f"expected {_number(worst.expected)}, got {_number(worst.actual)}"
    return f"{where}{list(worst.index)}: {found}"


def _number(value: float | int | bool) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _first_few(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
