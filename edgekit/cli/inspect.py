"""edgekit inspect: show what is in a model or a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.errors import UsageError
from edgekit.base.tensors import OpenTensorSpec, Quantization
from edgekit.base.wording import amount, size
from edgekit.cli.console import Console
from edgekit.cli.options import Command, binding_options, json_option, model_argument, pass_console

if TYPE_CHECKING:
    from edgekit.advice.summary import ModelSummary
    from edgekit.api.keywords import BindingKeywords


@click.command("inspect", cls=Command)
@model_argument
@binding_options
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    binding: BindingKeywords,
) -> None:
    """Show what is in MODEL and whether it can be built.

    MODEL may also be a bundle's folder or .zip.

    For a model that can't be built the exit code is 0 too: see the last line, or the key
    "buildable" of --json. Peak activations are the most bytes of tensors that are alive at the
    same time, without weights.
    """
    from edgekit.bundle.folder import looks_like_a_bundle
    from edgekit.cli.show_bundle import show_bundle

    if model is not None and looks_like_a_bundle(model):
        if any(binding.values()):
            raise UsageError(
                f"{model} is a bundle, whose shapes and constants are fixed",
                hint="leave out --shape and --constant, or name the model file",
            )
        show_bundle(console, model)
        return
    summary = console.workspace.inspect(model, **binding)
    console.report(summary, lambda: _render(console, summary))


def _render(console: Console, summary: ModelSummary) -> None:
    console.fields(_facts(summary))
    for title, specs in (("inputs", summary.inputs), ("outputs", summary.outputs)):
        console.print()
        console.heading(title)
        console.table(("name", "dtype", "shape", "quantisation"), [_row(spec) for spec in specs])
    console.print()
    console.heading("operators")
    console.table(
        ("count", "operator"),
        [(operator.count, operator.name) for operator in summary.operators],
        right=("count",),
    )
    if summary.unsupported:
        console.print()
        console.heading("can't be compiled")
        console.table(
            ("count", "operator", "first node", "reason"),
            [(item.count, item.name, item.node, item.reason) for item in summary.unsupported],
            right=("count",),
        )
    for repair in summary.repairs:
        console.events.note(f"repaired: {repair}")
    console.print()
    if summary.obstacle is None:
        console.print("can be built: yes")
        return
    console.print(f"can be built: no, {summary.obstacle.message}")
    if summary.obstacle.hint:
        console.print(f"  {summary.obstacle.hint}")


def _facts(summary: ModelSummary) -> Sequence[tuple[str, str]]:
    facts = [
        ("model", f"{summary.name} ({summary.format})"),
        ("sha256", summary.sha256),
        ("parameters", f"{amount(summary.parameters)} ({size(summary.parameter_bytes)})"),
    ]
    if summary.cost is not None:
        macs, peak = summary.cost.macs, summary.cost.peak_activation_bytes
        unknown = "depends on the data"
        facts += [
            ("multiply-accumulates", unknown if macs is None else amount(macs)),
            ("peak activations", unknown if peak is None else size(peak)),
        ]
    return facts


def _row(spec: OpenTensorSpec) -> tuple[str, str, str, str | None]:
    shape = ", ".join(str(extent) for extent in spec.shape)
    return spec.name, spec.dtype, f"[{shape}]", _quantization(spec.quantization)


def _quantization(quantization: Quantization | None) -> str | None:
    if quantization is None:
        return None
    if quantization.axis is not None:
        return f"{len(quantization.scales)} scales along axis {quantization.axis}"
    return f"scale {quantization.scales[0]:g}, zero point {quantization.zero_points[0]}"
