"""Runs onnxruntime's static quantiser for what edgekit can run in integers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.shape_inference
import onnx.version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from edgekit.base.arrays import Array
from edgekit.base.errors import EdgekitError, ModelError, UnsupportedModelError
from edgekit.base.events import Stage
from edgekit.base.options import option
from edgekit.base.tensors import TensorSpec
from edgekit.verbs.quantization.calibration import Calibration

Method = Literal["minmax", "entropy", "percentile"]
Ends = Literal["float", "int8"]

_METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}
_OLDEST_OPSET = 13
_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


@dataclass(frozen=True)
class Settings:
    per_channel: bool = True
    method: Method = "minmax"
    ends: Ends = "float"
    exclude: tuple[str, ...] = ()
    """Nodes that stay in float."""
    symmetric: bool = False
    """Whether activations have the zero point zero, as TensorRT needs it. Values that are never
    negative lose a bit."""


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: Calibration, stage: Stage) -> None:
        self._samples = samples
        self._stage = stage
        self._left = iter(samples)

    def get_next(self) -> Mapping[str, Array] | None:
        sample = next(self._left, None)
        if sample is not None:
            self._stage.advance()
        return sample

    def rewind(self) -> None:
        self._left = iter(self._samples)


def prepared(model: onnx.ModelProto, inputs: tuple[TensorSpec, ...], scratch: Path) -> Path:
    """Prepare the float model for the quantiser: close shapes, fold batch norm."""
    _refuse_quantised(model)
    closed = onnx.ModelProto()
    closed.CopyFrom(model)
    shapes = {spec.name: spec.shape for spec in inputs}
    for item in closed.graph.input:
        if item.name in shapes:
            tensor = item.type.tensor_type
            tensor.shape.Clear()
            for extent in shapes[item.name]:
                tensor.shape.dim.add().dim_value = extent
    name_nodes(closed)
    closed = _recent(closed)
    plain, ready = scratch / "closed.onnx", scratch / "prepared.onnx"
    onnx.save(closed, plain)
    with _quiet():
        # The inference of symbols fails for some operators, and loading it takes half a second.
        for skip_symbolic in (True,) if _shapes_are_known(closed) else (False, True):
            try:
                quant_pre_process(str(plain), str(ready), skip_symbolic_shape=skip_symbolic)
                break
            except Exception as error:
                if skip_symbolic:
                    raise UnsupportedModelError(
                        "onnxruntime can't prepare the model for quantisation: "
                        + _first_line(error),
                        hint="`edgekit inspect` shows what is in it; close open dimensions with "
                        f"{option('shape')}",
                    ) from error
    return ready


def _shapes_are_known(model: onnx.ModelProto) -> bool:
    """Return whether ONNX's own inference finds the shape of every tensor."""
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    known = {
        item.name
        for item in (*graph.value_info, *graph.output)
        if item.type.tensor_type.HasField("shape")
        and all(extent.HasField("dim_value") for extent in item.type.tensor_type.shape.dim)
    }
    return all(name in known for node in graph.node for name in node.output if name)


def _recent(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert the model to opset 13, which scales per channel need."""
    version = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if version >= _OLDEST_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, _OLDEST_OPSET)
    except Exception as error:
        raise UnsupportedModelError(
            f"the model is of opset {version}, and can't be brought to {_OLDEST_OPSET}: "
            + _first_line(error),
            hint="export it again with a newer opset",
        ) from error


def name_nodes(model: onnx.ModelProto) -> None:
    """Give each node a unique name. Nodes are excluded and reported by name."""
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        name = node.name or f"{node.op_type}_{index}"
        while name in taken:
            name = f"{name}_{index}"
        node.name = name
        taken.add(name)


def quantised(
    prepared_model: Path, calibration: Calibration, settings: Settings, scratch: Path, stage: Stage
) -> onnx.ModelProto:
    """Put QuantizeLinear and DequantizeLinear around every operator with an integer kernel.

    Weights are symmetric, as every library needs them.
    """
    _check_excluded(prepared_model, settings.exclude)
    out = scratch / "quantised.onnx"
    with _quiet():
        try:
            quantize_static(
                str(prepared_model),
                str(out),
                _Reader(calibration, stage),
                quant_format=QuantFormat.QDQ,
                per_channel=settings.per_channel,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=list(settings.exclude),
                calibrate_method=_METHODS[settings.method],
                extra_options={
                    "ActivationSymmetric": settings.symmetric,
                    "WeightSymmetric": True,
                },
            )
        except (EdgekitError, OSError):
            raise  # of a sample, which is first read now, or of the disk
        except Exception as error:
            raise UnsupportedModelError(
                f"onnxruntime can't quantise the model: {_first_line(error)}",
                hint=f"{option('exclude', 'NODE')} leaves a node in float; {option('debug')} "
                "shows more",
            ) from error
    model = onnx.load(out)
    if not any(node.op_type == _QUANTIZE for node in model.graph.node):
        raise UnsupportedModelError(
            "nothing in the model can be quantised",
            hint="quantisation is for convolutions, matrix products and what surrounds them",
        )
    return stripped(model) if settings.ends == "int8" else model


def stripped(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with int8 inputs and outputs where they are quantised at once."""
    graph = model.graph
    for item in graph.input:
        readers = [node for node in graph.node if item.name in node.input]
        if readers and all(node.op_type == _QUANTIZE for node in readers):
            first = readers[0]
            if any(list(node.input[1:]) != list(first.input[1:]) for node in readers):
                continue
            for node in readers:
                _replace_reads(graph, node.output[0], item.name)
                graph.node.remove(node)
            item.type.tensor_type.elem_type = onnx.TensorProto.INT8
    for item in graph.output:
        writer = next((node for node in graph.node if item.name in node.output), None)
        if writer is None or writer.op_type != _DEQUANTIZE:
            continue
        stored = writer.input[0]
        producer = next((node for node in graph.node if stored in node.output), None)
        readers = [node for node in graph.node if stored in node.input]
        read_on = any(item.name in node.input for node in graph.node)
        if producer is None or readers != [writer] or read_on:
            continue
        producer.output[list(producer.output).index(stored)] = item.name
        graph.node.remove(writer)
        item.type.tensor_type.elem_type = onnx.TensorProto.INT8
    return model


def as_stored(
    sample: Mapping[str, Array], with_float_ends: onnx.ModelProto, result: onnx.ModelProto
) -> dict[str, Array]:
    """Return a sample of the float model as `result` takes it, whose inputs may be stored int8."""
    stored = dict(sample)
    constants = {item.name: item for item in with_float_ends.graph.initializer}
    for item in result.graph.input:
        if item.type.tensor_type.elem_type != onnx.TensorProto.INT8:
            continue
        for node in with_float_ends.graph.node:
            if node.op_type == _QUANTIZE and node.input[0] == item.name:
                scale, zero = (
                    onnx.numpy_helper.to_array(constants[name]) for name in node.input[1:3]
                )
                steps = np.rint(sample[item.name] / scale) + zero.astype(np.float64)
                stored[item.name] = np.clip(steps, -128, 127).astype(np.int8)
    return stored


def _replace_reads(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new


def _refuse_quantised(model: onnx.ModelProto) -> None:
    if any(node.op_type in (_QUANTIZE, _DEQUANTIZE, "QLinearConv") for node in model.graph.node):
        raise UnsupportedModelError(
            "the model is quantised already",
            hint="build it as it is, or quantise the float model that it came from",
        )


def _check_excluded(path: Path, exclude: tuple[str, ...]) -> None:
    names = [node.name for node in onnx.load(path, load_external_data=False).graph.node]
    for name in exclude:
        if name not in names:
            from edgekit.base.wording import did_you_mean

            raise ModelError(
                f"there is no node {name!r} to leave in float",
                hint=did_you_mean(name, names, "the report names the nodes, dearest first"),
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the quantiser's log, which only advises what edgekit does anyway."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def operators_in_float(model: onnx.ModelProto) -> tuple[str, ...]:
    """List the operators with a float result that is not quantised at once."""
    stored = {node.input[0] for node in model.graph.node if node.op_type == _QUANTIZE}
    left = [
        node.op_type
        for node in model.graph.node
        if node.op_type not in (_QUANTIZE, _DEQUANTIZE) and not stored & set(node.output)
    ]
    return tuple(f"{count} {name}" for name, count in Counter(left).most_common())


def load(path: Path) -> onnx.ModelProto:
    return onnx.load(path)
