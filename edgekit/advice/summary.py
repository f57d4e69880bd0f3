"""Summarises a model for `edgekit inspect`, importable or not."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.base.errors import BuildError, EdgekitError, ModelError, UnsupportedModelError
from edgekit.base.events import SILENT, Events
from edgekit.base.report import Report
from edgekit.base.tensors import OpenTensorSpec
from edgekit.base.varying import without_lengths
from edgekit.base.wording import amount
from edgekit.models.model import (
    Model,
    ModelFormat,
    ModelScan,
    ModelSource,
    OperatorCount,
    UnsupportedOperator,
    import_model,
    scan_model,
)


@dataclass(frozen=True)
class Obstacle:
    """The reason why a model can't be built, and what to do about it."""

    message: str
    hint: str | None
    details: tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """The cost of one inference; None if shapes depend on the data."""

    macs: int | None
    """Multiply-accumulates of convolutions and matrix products."""
    peak_activation_bytes: int | None
    """The most bytes of tensors alive at the same time, without weights."""


@dataclass(frozen=True)
class ModelSummary(Report):
    name: str
    format: ModelFormat
    sha256: str
    buildable: bool
    obstacle: Obstacle | None
    inputs: tuple[OpenTensorSpec, ...]
    outputs: tuple[OpenTensorSpec, ...]
    """The outputs, with the given shapes if the model could be imported."""
    operators: tuple[OperatorCount, ...]
    parameters: int
    parameter_bytes: int
    unsupported: tuple[UnsupportedOperator, ...]
    repairs: tuple[str, ...]
    cost: Cost | None

    def headline(self) -> str:
        verdict = "can be built" if self.buildable else "can't be built"
        weights = f"{amount(self.parameters)} parameters"
        return f"{self.name} ({self.format}): {weights}, {verdict}"


def summarise(source: ModelSource, events: Events = SILENT) -> ModelSummary:
    """Scan a model, import it if that is possible, and count.

    A model that can't be imported is described as far as possible. A file that is no model, or a
    given shape or constant that doesn't fit, is an error.
    """
    with events.stage("read the model"):
        scan = scan_model(source)
    if scan.unsupported:
        return _without_import(source, scan, _unsupported(scan))
    try:
        with events.stage("import the model"):
            model = import_model(source, events)
        with events.stage("count what it costs"):
            cost = _cost(model)
    except ModelError as error:
        if source.shapes or source.constants:
            raise
        return _without_import(source, scan, error)
    except (UnsupportedModelError, BuildError) as error:
        return _without_import(source, scan, error)
    inputs, outputs = without_lengths(model.inputs, model.outputs)
    return ModelSummary(
        name=source.name,
        format=source.format,
        sha256=source.sha256,
        buildable=True,
        obstacle=None,
        inputs=tuple(spec.opened() for spec in inputs),
        outputs=tuple(spec.opened() for spec in outputs),
        operators=scan.operators,
        parameters=scan.parameters,
        parameter_bytes=scan.parameter_bytes,
        unsupported=(),
        repairs=model.repairs,
        cost=cost,
    )


def _cost(model: Model) -> Cost:
    from edgekit.compiler.compile import fused, simplified

    counted, kernels = simplified(model.module), fused(model.module)

    from edgekit.compiler.liveness import peak_activation_bytes
    from edgekit.compiler.macs import ShapeDependsOnDataError, count_macs

    try:
        return Cost(count_macs(counted), peak_activation_bytes(kernels))
    except ShapeDependsOnDataError:
        return Cost(None, None)


def _unsupported(scan: ModelScan) -> EdgekitError:
    first = scan.unsupported[0]
    others = len(scan.unsupported) - 1
    also = f", and {others} other operator{'s' if others > 1 else ''}" if others else ""
    return UnsupportedModelError(
        f"{first.name} (node {first.node}) can't be compiled{also}: {first.reason}"
    )


def _without_import(source: ModelSource, scan: ModelScan, error: EdgekitError) -> ModelSummary:
    return ModelSummary(
        name=source.name,
        format=source.format,
        sha256=source.sha256,
        buildable=False,
        obstacle=Obstacle(error.message, error.hint, error.details),
        inputs=scan.inputs,
        outputs=scan.outputs,
        operators=scan.operators,
        parameters=scan.parameters,
        parameter_bytes=scan.parameter_bytes,
        unsupported=scan.unsupported,
        repairs=(),
        cost=None,
    )
