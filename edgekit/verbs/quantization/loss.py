"""Measures the loss by quantisation: of the outputs, and of the layers that lose most."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from edgekit.base.arrays import Array
from edgekit.base.events import Stage

_SUFFIXES = ("_DequantizeLinear_Output", "")
"""Suffixes of a float tensor's name in the quantised model: behind its rounding, or unchanged."""
_FLOAT = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)


@dataclass(frozen=True)
class OutputLoss:
    name: str
    signal_to_noise: float | None
    """The ratio in decibels; None if both models agree to the last bit."""
    max_error: float
    top1_agreement: float | None
    """The share of samples with the same largest element; None if there are no classes."""


@dataclass(frozen=True)
class LayerLoss:
    name: str
    operator: str
    signal_to_noise: float
    """The ratio in decibels behind this layer, with all layers before it."""
    lost: float
    """The loss in decibels against its worst input."""


@dataclass
class _Power:
    """Sums over all samples."""

    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0

    def add(self, expected: Array, actual: Array) -> None:
        difference = np.asarray(expected, "float64") - np.asarray(actual, "float64")
        self.signal += float((np.asarray(expected, "float64") ** 2).sum())
        self.noise += float((difference**2).sum())
        if difference.size:
            self.largest = max(self.largest, float(np.abs(difference).max()))

    @property
    def decibels(self) -> float | None:
        if self.noise == 0.0:
            return None
        ratio = self.signal / self.noise
        return 10.0 * math.log10(ratio) if ratio > 0.0 else -math.inf  # NaN is not above either


@dataclass
class _Classes:
    hits: list[bool] = field(default_factory=list)
    before: list[bool] = field(default_factory=list)
    after: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class Accuracy:
    """The share of samples whose first class is the labelled one."""

    before: float
    after: float


@dataclass(frozen=True)
class OutputLosses:
    outputs: tuple[OutputLoss, ...]
    accuracy: Accuracy | None
    """The accuracy, if labels were given."""


def compare_outputs(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    samples: Iterable[Mapping[str, Array]],
    labels: Array | None,
    stage: Stage,
) -> OutputLosses:
    """Run both models on every sample and compare. Both have float inputs and outputs."""
    names = [item.name for item in before.graph.output]
    first, second = _session(before), _session(after)
    powers = {name: _Power() for name in names}
    classes = {name: _Classes() for name in names}
    for index, sample in enumerate(samples):
        expected = first.run(names, dict(sample))
        actual = second.run(names, dict(sample))
        for name, one, other in zip(names, expected, actual, strict=True):
            powers[name].add(one, other)
            if _has_classes(one):
                agreement = classes[name]
                agreement.hits.append(bool(one.argmax() == other.argmax()))
                if labels is not None:
                    agreement.before.append(bool(one.argmax() == labels[index]))
                    agreement.after.append(bool(other.argmax() == labels[index]))
        stage.advance()
    outputs = tuple(
        OutputLoss(
            name,
            powers[name].decibels,
            powers[name].largest,
            float(np.mean(classes[name].hits)) if classes[name].hits else None,
        )
        for name in names
    )
    labelled = next((agreement for agreement in classes.values() if agreement.before), None)
    accuracy = None
    if labelled is not None:
        accuracy = Accuracy(float(np.mean(labelled.before)), float(np.mean(labelled.after)))
    return OutputLosses(outputs, accuracy)


def layer_losses(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    samples: Iterable[Mapping[str, Array]],
    stage: Stage,
) -> tuple[LayerLoss, ...]:
    """Return the loss of each layer whose result both models have, the largest first."""
    behind = _tensors(after)
    places = {
        name: next((name + suffix for suffix in _SUFFIXES if name + suffix in behind), None)
        for name in _tensors(before)
    }
    compared = {name: place for name, place in places.items() if place is not None}
    wanted, found = list(compared), list(compared.values())
    first, second = _session(_showing(before, wanted)), _session(_showing(after, found))
    powers = {name: _Power() for name in wanted}
    for sample in samples:
        expected = first.run(wanted, dict(sample))
        actual = second.run(found, dict(sample))
        for name, one, other in zip(wanted, expected, actual, strict=True):
            powers[name].add(one, other)
        stage.advance()
    decibels = {name: power.decibels for name, power in powers.items()}
    makers = {name: node for node in before.graph.node for name in node.output}
    losses = [_loss(name, makers, decibels) for name in wanted if name in makers]
    return tuple(sorted((loss for loss in losses if loss), key=lambda loss: -loss.lost))


def _loss(
    name: str, makers: Mapping[str, onnx.NodeProto], decibels: Mapping[str, float | None]
) -> LayerLoss | None:
    """Return the loss between a tensor and the nearest ones before it that both models have.

    A convolution and its activation are one layer if they are rounded once.
    """
    behind = decibels[name]
    if behind is None or not math.isfinite(behind):
        return None
    chain, waiting, sources = [makers[name]], list(makers[name].input), []
    while waiting:
        source = waiting.pop()
        if source in decibels:
            sources.append(decibels[source])
        elif source in makers and makers[source] not in chain:
            chain.append(makers[source])
            waiting += makers[source].input
    if not sources:
        return None  # made of constants alone
    at_input = min(_EXACT if value is None else min(value, _EXACT) for value in sources)
    chain.reverse()
    operators = " + ".join(node.op_type for node in chain)
    return LayerLoss(chain[0].name, operators, behind, at_input - behind)


_EXACT = 60.0
"""Decibels of an input without noise. int8 leaves about 50 of a full range."""


def _tensors(model: onnx.ModelProto) -> dict[str, None]:
    """List the float results of all nodes, and the inputs."""
    types = {
        item.name: item.type.tensor_type.elem_type
        for item in (*model.graph.value_info, *model.graph.output, *model.graph.input)
    }
    stored = {tensor.name for tensor in model.graph.initializer}
    results = [name for node in model.graph.node for name in node.output if name]
    names = [item.name for item in model.graph.input] + results
    constant = {
        node.output[0]
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in stored
    }
    return {
        name: None
        for name in names
        if name not in stored
        and name not in constant
        and types.get(name, onnx.TensorProto.FLOAT) in _FLOAT
    }


def _showing(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    for name in names:
        shown.graph.output.append(onnx.ValueInfoProto(name=name))
    return shown


def _session(model: onnx.ModelProto) -> Any:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _has_classes(output: Array) -> bool:
    return output.ndim >= 1 and output.size == output.shape[-1] and output.size > 1
