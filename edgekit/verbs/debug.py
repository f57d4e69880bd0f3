"""Compares the values inside a model on a device with an oracle's, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.base.errors import VerificationError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.report import Report
from edgekit.base.wording import counted, number
from edgekit.models.comparison import TensorComparison, Widening, compare, tolerance_for

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.base import RunsBundles
    from edgekit.models.inner_value import InnerValue
    from edgekit.models.model import ModelSource


@dataclass(frozen=True)
class LayerReport:
    """A value of the model, and how far the device is off."""

    layer: str
    """The node that computes the value."""
    operator: str
    value: str
    """The name of the tensor."""
    compared: TensorComparison


@dataclass(frozen=True)
class DebugReport(Report):
    model: str
    board: str
    device: str
    measured_by: Measurer
    oracle: str
    """The oracle's name and version."""
    layers: tuple[LayerReport, ...]
    """The compared values in the order of the model."""

    @property
    def first_off(self) -> LayerReport | None:
        """The first layer whose value is out of tolerance."""
        return next((layer for layer in self.layers if not layer.compared.passed), None)

    def headline(self) -> str:
        first = self.first_off
        against = f"{self.device} against {self.oracle}"
        if first is None:
            return f"{against}: {counted(len(self.layers), 'layer')} of {self.model} agree"
        return f"{against}: the first layer that is off is {layer_in_words(first)}"


@dataclass(frozen=True)
class Variant:
    """A model with some of its inner values as outputs, built, and the model of the oracle."""

    bundle: Bundle
    expected: ModelSource
    values: Sequence[InnerValue]


def debug(
    variants: Iterable[Callable[[], Variant]],
    device: RunsBundles,
    *,
    widening: Widening | None = None,
    events: Events = SILENT,
) -> DebugReport:
    """Run each variant on its reference input, and compare its values with the oracle's."""
    layers: list[LayerReport] = []
    oracle = measured_by = None
    for build in variants:
        variant = build()
        oracle, measured_by, found = _compared(variant, device, widening, events)
        manifest = variant.bundle.manifest
        layers += found
    assert oracle is not None and measured_by is not None
    return DebugReport(
        manifest.model.name, manifest.board.name, device.name, measured_by, oracle, tuple(layers)
    )


def _compared(
    variant: Variant, device: RunsBundles, widening: Widening | None, events: Events
) -> tuple[str, Measurer, Iterator[LayerReport]]:
    from edgekit.models.oracle import oracle_for

    bundle = variant.bundle
    inputs = bundle.reference_inputs()
    oracle = oracle_for(variant.expected)
    wanted = oracle.run(inputs)
    with device.opened(bundle, purpose="debug", events=events) as session:
        (result,) = session.run_all([inputs])
        measured_by = session.measured_by
    leeways = oracle.leeways(inputs, wanted)
    specs = {entry.spec.name: entry.spec for entry in bundle.manifest.outputs}
    chosen = [specs[one.name] for one in variant.values]
    tolerances = {
        spec.name: tolerance_for(spec, widening, leeways.get(spec.name)) for spec in chosen
    }
    tensors = compare(wanted, result.outputs, chosen, tolerances).tensors
    layers = (
        LayerReport(one.layer, one.operator, one.name, tensor)
        for one, tensor in zip(variant.values, tensors, strict=True)
    )
    return f"{oracle.name} {oracle.version}", measured_by, layers


def raise_if_off(report: DebugReport) -> None:
    """Raise VerificationError if the report says that a layer is off."""
    first = report.first_off
    if first is None:
        return
    off = sum(not layer.compared.passed for layer in report.layers)
    raise VerificationError(
        f"the first layer that is off on {report.device} is {layer_in_words(first)}",
        hint=f"{option('rtol')} and {option('atol')} widen what is allowed; {option('offload')} "
        "none shows whether a library's arithmetic is the reason",
        details=(f"{off} of {counted(len(report.layers), 'layer')} are off",),
    )


def layer_in_words(layer: LayerReport) -> str:
    return f"{layer.layer} ({layer.operator}), {error_in_words(layer.compared)}"


def error_in_words(compared: TensorComparison) -> str:
    if compared.mismatch is not None:
        return compared.mismatch
    if compared.unit == "steps":
        return f"off by {counted(round(compared.max_error), 'step')}"
    return f"off by {number(compared.max_error)} of {number(compared.largest)}"
