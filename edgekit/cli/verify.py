"""edgekit verify: compare a bundle's outputs with an oracle's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.base.errors import UsageError
from edgekit.base.wording import counted, percent
from edgekit.cli.console import Console
from edgekit.cli.device_options import several_devices_options
from edgekit.cli.input_options import input_options
from edgekit.cli.junit import junit_file, junit_option
from edgekit.cli.options import (
    MODEL_FILE,
    Command,
    bundle_argument,
    constant_option,
    grouped,
    json_option,
    pass_console,
    shape_option,
)
from edgekit.cli.several import Columns, on_several
from edgekit.verbs.fleet import raise_if_any_failed

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceChoice, DeviceKeywords
    from edgekit.api.inputs import InputKeywords
    from edgekit.api.workspace import Workspace
    from edgekit.bundle.folder import Bundle
    from edgekit.verbs.verify import OutputReport, VerifyReport


tolerance_options = grouped(
    "tolerance",
    dict,
    click.option(
        "--rtol",
        type=click.FloatRange(min=0),
        metavar="X",
        help="Allowed relative error of each element of float outputs.",
    ),
    click.option(
        "--atol",
        type=click.FloatRange(min=0),
        metavar="X",
        help="Allowed absolute error of float outputs.",
    ),
    click.option(
        "--steps",
        type=click.IntRange(min=0),
        metavar="N",
        help="Allowed error of quantised outputs, in steps.",
    ),
)
"""Options that add `tolerance: ToleranceKeywords`."""


_how_options = grouped(
    "how",
    dict,
    click.option(
        "--model",
        type=MODEL_FILE,
        metavar="MODEL",
        help="With --input: the model file that the bundle was built from.  "
        "[default: the project's]",
    ),
    shape_option,
    constant_option,
    tolerance_options,
)


@click.command("verify", cls=Command)
@bundle_argument
@input_options
@_how_options
@several_devices_options
@junit_option
@json_option
@pass_console
def command(
    console: Console,
    bundle: Path,
    given: InputKeywords,
    how: dict[str, Any],
    where: DeviceChoice,
    junit: Path | None,
) -> None:
    """Compare BUNDLE's outputs on a device with those of an oracle.

    The oracle is another runtime that ran the same model file, such as onnxruntime.

    Without --input, compare with the expected outputs in the bundle.
    """
    from edgekit.base.junit import case_of_error
    from edgekit.verbs.junit import cases_of_verification
    from edgekit.verbs.verify import raise_if_failed

    if how["model"] is not None and not given["inputs"]:
        raise UsageError(
            "--model does nothing without --input: the bundle holds its expected outputs",
            hint="add --input FILE, or leave out --model",
        )

    def work(ws: Workspace, opened: Bundle, on: DeviceKeywords) -> VerifyReport:
        return ws.verify(opened, **how, **given, **on)

    with junit_file(junit, "verify", bundle.name) as cases:
        if where.is_several:

            def proven(ws: Workspace, opened: Bundle, on: DeviceKeywords) -> VerifyReport:
                report = work(ws, opened, on)
                cases.extend(cases_of_verification(report))
                raise_if_failed(report)
                return report

            columns = Columns(("samples", "max error", "in", "allowed"), _cells, "verified")
            outcomes = on_several(console, bundle, where, given, proven, columns)
            cases.extend(
                case_of_error((bundle.name, outcome.device), "verify", outcome.error)
                for outcome in outcomes
                if outcome.error is not None and outcome.error.type != "VerificationError"
            )
            raise_if_any_failed(outcomes)
            return
        ws = console.workspace
        report = work(ws, ws.setting.bundle(bundle), where.keywords)
        cases += cases_of_verification(report)
        console.report(report, lambda: render_verification(console, report))
        raise_if_failed(report)


def _cells(report: VerifyReport) -> list[object]:
    largest = max(report.outputs, key=lambda output: output.max_error)
    return [len(report.samples), _row(largest, report)[3], largest.name, str(largest.tolerance)]


def render_verification(console: Console, report: VerifyReport) -> None:
    """Print the table; `deploy` prints it too."""
    verdict = "verified" if report.passed else "not the same numbers"
    count = len(report.samples)
    what = vectors_in_words(report) if report.reference else counted(count, "sample")
    console.heading(f"{verdict}: {report.device} against {report.oracle}, {what}")
    console.table(
        ["output", "type", "verdict", "max error", "allowed", "outside", "top-1", "worst element"],
        [_row(output, report) for output in report.outputs],
        right=["max error", "outside", "top-1"],
        spare=["type", "top-1"],
    )
    failed = [sample.name for sample in report.samples if not sample.passed]
    if failed:
        kind = "reference vectors" if report.reference else "samples"
        console.print(f"{len(failed)} of {count} {kind} failed: {_first_few(failed)}")
    for left in report.left_out:
        console.print(f"no reference vector {left.name!r}: {left.reason}")


def vectors_in_words(report: VerifyReport) -> str:
    """Return the count and names of the reference vectors that were compared."""
    names = ", ".join(sample.name for sample in report.samples)
    return f"{counted(len(report.samples), 'reference vector')} ({names})"


def _row(output: OutputReport, report: VerifyReport) -> list[object]:
    return [
        output.name,
        output.dtype,
        "pass" if output.passed else "FAIL",
        output.error_in_words(),
        str(output.tolerance),
        f"{output.out_of_tolerance}/{output.elements}",
        None if output.top1_agreement is None else percent(output.top1_agreement),
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
