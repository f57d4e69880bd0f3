"""A run of a program's steps as a TFLite file, which Vela reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.aot.operators import (
    Add,
    AveragePool,
    Concatenate,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    Image,
    Lookup,
    MaxPool,
    Mean,
    Multiply,
    Operand,
    Pad,
    ResizeNearest,
    Scales,
    Window,
)
from edgekit.aot.program import Buffer, Step
from edgekit.backends.ethos_u.flatbuffer import TfliteWriter
from edgekit.backends.ethos_u.quantisation import (
    Quantisation,
    operand_quantisations,
    quantisations,
)
from edgekit.base.arrays import Array

_SAME, _VALID = 0, 1
_NONE = 0
_ACTIVATIONS = ((1, 0.0, None), (3, 0.0, 6.0), (2, -1.0, 1.0))
"""TFLite's numbers of fused activations, and the real values between which each keeps results."""


class NotForVela(Exception):
    """The reason why a step has no form in TFLite, in one sentence."""


@dataclass(frozen=True)
class Layer:
    """A convolution or a matrix product, as its commands show it."""

    rounds_once: bool
    channels: tuple[tuple[int, float], ...]
    """The bias and the factor of each output channel."""


@dataclass(frozen=True)
class Network:
    content: bytes
    operators: tuple[str, ...]
    input_bytes: tuple[int, ...]
    """The bytes of each input, in the order of the file."""
    output_bytes: tuple[int, ...]
    layers: tuple[Layer, ...]
    tables: tuple[tuple[Quantisation, Quantisation, tuple[int, ...]], ...]
    """The tables for which the file has a hard-swish between the same quantisations: Vela makes a
    table of any function, and this one replaces it."""


def network_of(
    steps: Sequence[Step], buffers: Sequence[Buffer], inputs: Sequence[int], outputs: Sequence[int]
) -> Network:
    writer = _Network(steps, buffers)
    given = [writer.add_input(buffer) for buffer in inputs]
    for step in steps:
        WRITERS[type(step.operator)](writer, step, step.operator)
    made = [writer.tensors[buffer] for buffer in outputs]
    content = writer.file.finish(given, made)
    return Network(
        content,
        tuple(type(step.operator).__name__ for step in steps),
        tuple(buffers[buffer].bytes for buffer in inputs),
        tuple(buffers[buffer].bytes for buffer in outputs),
        tuple(_learnt_layer(step.operator) for step in steps if isinstance(step.operator, _LEARNT)),
        tuple(writer.tables),
    )


_LEARNT = Conv2D, DepthwiseConv2D, FullyConnected


def _learnt_layer(operator: Conv2D | DepthwiseConv2D | FullyConnected) -> Layer:
    factors = [f.multiplier * 2.0 ** (f.shift - 31) for f in operator.rescale.factors]
    biases = [int(bias) for bias in operator.bias]
    each = factors * (len(biases) // len(factors))
    return Layer(operator.rescale.rounds_once, tuple(zip(biases, each, strict=True)))


class _Network:
    def __init__(self, steps: Sequence[Step], buffers: Sequence[Buffer]) -> None:
        self.file = TfliteWriter()
        self.tensors: dict[int, int] = {}
        self.tables: list[tuple[Quantisation, Quantisation, tuple[int, ...]]] = []
        self.quantisation = quantisations(steps)
        self._buffers = buffers

    def add_input(self, buffer: int) -> int:
        self.tensors[buffer] = self._new(buffer, self._buffers[buffer].shape)
        return self.tensors[buffer]

    def read(self, buffer: int, shape: tuple[int, ...]) -> int:
        """Return the tensor of a buffer in the shape that its reader needs."""
        import numpy as np

        tensor = self.tensors[buffer]
        if self.file.shape_of(tensor) == shape:
            return tensor
        result = self._new(buffer, shape)
        extents = self.file.constant(f"shape of {result}", np.array(shape, np.int32))
        options = {"newShape": list(shape)}
        self.file.operator("RESHAPE", (tensor, extents), result, "ReshapeOptions", options)
        return result

    def write(self, buffer: int, shape: tuple[int, ...]) -> int:
        self.tensors[buffer] = self._new(buffer, shape)
        return self.tensors[buffer]

    def _new(self, buffer: int, shape: tuple[int, ...]) -> int:
        name = f"{self._buffers[buffer].name}_{len(self.tensors)}"
        return self.file.tensor(name, shape, self.quantisation[buffer])

    def padded(self, tensor: int, quantisation: Quantisation, padding: Sequence[int]) -> int:
        """Pad rows and columns with zeros; `padding` is top, left, bottom, right."""
        import numpy as np

        top, left, bottom, right = padding
        batch, height, width, channels = self.file.shape_of(tensor)
        shape = (batch, height + top + bottom, width + left + right, channels)
        result = self.file.tensor(f"padded {tensor}", shape, quantisation)
        widths = np.array([(0, 0), (top, bottom), (left, right), (0, 0)], np.int32)
        amounts = self.file.constant(f"padding of {tensor}", widths)
        self.file.operator("PAD", (tensor, amounts), result, "PadOptions")
        return result


def _extents(image: Image) -> tuple[int, int, int, int]:
    return 1, image.height, image.width, image.channels


def _activation(low: int, high: int, result: Quantisation) -> int:
    """Return the number of the fused activation that keeps stored values in a range."""
    from edgekit.aot.quantised.graph import Target

    if (low, high) == (-128, 127):
        return _NONE
    target = Target(result.scale, result.zero_point)
    for number, least, most in _ACTIVATIONS:
        kept = target.between(least, most)
        if (kept.low, kept.high) == (low, high):
            return number
    raise NotForVela(f"it keeps stored values in {low} to {high}, as no activation of TFLite does")


def _padding(source: Image, result: Image, window: Window) -> int | None:
    """Return TFLite's word for the window's padding; None where it has none."""
    if not any(window.padding):
        return _VALID
    wanted = []
    for given, made, kernel, stride, dilation in zip(
        (source.height, source.width),
        (result.height, result.width),
        window.kernel,
        window.strides,
        window.dilations,
        strict=True,
    ):
        total = max((made - 1) * stride + (kernel - 1) * dilation + 1 - given, 0)
        wanted.append((total // 2, total - total // 2, -(-given // stride) == made))
    (top, bottom, fits_y), (left, right, fits_x) = wanted
    return _SAME if (top, left, bottom, right) == window.padding and fits_y and fits_x else None


def _layer(net: _Network, step: Step, op: Conv2D | DepthwiseConv2D) -> None:
    source, result = net.quantisation[step.inputs[0]], net.quantisation[step.outputs[0]]
    activation = _activation(op.rescale.low, op.rescale.high, result)
    data = net.read(step.inputs[0], _extents(op.source))
    padding = _padding(op.source, op.result, op.window)
    if padding is None:
        data, padding = net.padded(data, source, op.window.padding), _VALID
    options = {
        "padding": padding,
        "strideH": op.window.strides[0],
        "strideW": op.window.strides[1],
        "dilationHFactor": op.window.dilations[0],
        "dilationWFactor": op.window.dilations[1],
        "fusedActivationFunction": activation,
    }
    is_depthwise = isinstance(op, DepthwiseConv2D)
    weights = op.weights[None] if is_depthwise else op.weights
    learnt = _learnt(net, step, weights, op.bias, op.scales, 3 if is_depthwise else 0)
    name, table = "CONV_2D", "Conv2DOptions"
    if isinstance(op, DepthwiseConv2D):
        name, table = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"
        options["depthMultiplier"] = op.multiplier
    made = net.write(step.outputs[0], _extents(op.result))
    net.file.operator(name, (data, *learnt), made, table, options, version=3)


def _dense(net: _Network, step: Step, op: FullyConnected) -> None:
    activation = _activation(op.rescale.low, op.rescale.high, net.quantisation[step.outputs[0]])
    units, depth = op.weights.shape
    data = net.read(step.inputs[0], (op.rows, depth))
    learnt = _learnt(net, step, op.weights, op.bias, op.scales, 0)
    made = net.write(step.outputs[0], (op.rows, units))
    options = {"fusedActivationFunction": activation}
    table = "FullyConnectedOptions"
    net.file.operator("FULLY_CONNECTED", (data, *learnt), made, table, options, version=4)


def _learnt(
    net: _Network, step: Step, weights: Array, bias: Array, scales: Scales | None, axis: int
) -> tuple[int, int]:
    import numpy as np

    assert scales is not None
    steps = tuple(scales.inputs[0] * scale for scale in scales.weights)
    return (
        net.file.constant(
            f"{step.name} weights", np.asarray(weights, np.int8), scales.weights, axis=axis
        ),
        net.file.constant(f"{step.name} bias", np.asarray(bias, np.int32), steps),
    )


def _pair(net: _Network, step: Step, op: Add | Multiply) -> None:
    import numpy as np

    activation = _activation(op.rescale.low, op.rescale.high, net.quantisation[step.outputs[0]])
    remaining = list(step.inputs)

    def side(operand: Operand, quantisation: Quantisation) -> int:
        if operand.constant is None:
            return net.read(remaining.pop(0), operand.shape)
        return net.file.constant(
            f"{step.name} constant {len(remaining)}",
            np.asarray(operand.constant, np.int8),
            (quantisation.scale,),
            quantisation.zero_point,
        )

    left, right = operand_quantisations(op)
    data = side(op.left, left), side(op.right, right)
    name, table = "MUL", "MulOptions"
    if isinstance(op, Add):
        name, table = ("SUB", "SubOptions") if op.negate_right else ("ADD", "AddOptions")
    made = net.write(step.outputs[0], op.shape)
    options = {"fusedActivationFunction": activation}
    net.file.operator(name, data, made, table, options, version=2)


def _pool(net: _Network, step: Step, op: AveragePool | MaxPool) -> None:
    if op.window.dilations != (1, 1):
        raise NotForVela("its window has gaps")
    padding = _padding(op.source, op.result, op.window)
    if padding is None:
        raise NotForVela("its padding is neither none nor that of the same size")
    activation = _activation(op.low, op.high, net.quantisation[step.outputs[0]])
    data = net.read(step.inputs[0], _extents(op.source))
    made = net.write(step.outputs[0], _extents(op.result))
    options = {
        "padding": padding,
        "strideH": op.window.strides[0],
        "strideW": op.window.strides[1],
        "filterHeight": op.window.kernel[0],
        "filterWidth": op.window.kernel[1],
        "fusedActivationFunction": activation,
    }
    name = "AVERAGE_POOL_2D" if isinstance(op, AveragePool) else "MAX_POOL_2D"
    net.file.operator(name, (data,), made, "Pool2DOptions", options, version=2)


def _mean(net: _Network, step: Step, op: Mean) -> None:
    import numpy as np

    if (op.rescale.low, op.rescale.high) != (-128, 127):
        raise NotForVela("it keeps means in a range, as no mean of TFLite does")
    data = net.read(step.inputs[0], _extents(op.source))
    axes = net.file.constant(f"{step.name} axes", np.array((1, 2), np.int32))
    made = net.write(step.outputs[0], (1, 1, 1, op.source.channels))
    net.file.operator("MEAN", (data, axes), made, "ReducerOptions", {"keepDims": True}, version=2)


def _resize(net: _Network, step: Step, op: ResizeNearest) -> None:
    import numpy as np

    for places, given in ((op.rows, op.source.height), (op.columns, op.source.width)):
        made = len(places)
        if any(place != k * given // made for k, place in enumerate(places)):
            raise NotForVela("it places pixels by another rule than TFLite's first")
        if any(place != (2 * k + 1) * given // (2 * made) for k, place in enumerate(places)):
            raise NotForVela("Vela makes it take the pixel at the centre, which is another")
    data = net.read(step.inputs[0], _extents(op.source))
    extents = np.array((op.result.height, op.result.width), np.int32)
    size = net.file.constant(f"{step.name} size", extents)
    result = net.write(step.outputs[0], _extents(op.result))
    table = "ResizeNearestNeighborOptions"
    net.file.operator("RESIZE_NEAREST_NEIGHBOR", (data, size), result, table, version=1)


def _pad(net: _Network, step: Step, op: Pad) -> None:
    import numpy as np

    quantisation = net.quantisation[step.outputs[0]]
    if op.value != quantisation.zero_point:
        raise NotForVela("it does not pad with zeros")
    data = net.read(step.inputs[0], op.shape)
    shape = tuple(a + b + c for a, b, c in zip(op.before, op.shape, op.after, strict=True))
    widths = np.array(list(zip(op.before, op.after, strict=True)), np.int32)
    amounts = net.file.constant(f"{step.name} padding", widths)
    made = net.write(step.outputs[0], shape)
    net.file.operator("PAD", (data, amounts), made, "PadOptions", version=2)


def _concatenate(net: _Network, step: Step, op: Concatenate) -> None:
    pairs = zip(step.inputs, op.shapes, strict=True)
    data = tuple(net.read(buffer, shape) for buffer, shape in pairs)
    shape = list(op.shapes[0])
    shape[op.axis] = sum(part[op.axis] for part in op.shapes)
    made = net.write(step.outputs[0], tuple(shape))
    options = {"axis": op.axis}
    net.file.operator("CONCATENATION", data, made, "ConcatenationOptions", options, version=2)


def _lookup(net: _Network, step: Step, op: Lookup) -> None:
    source, result = net.quantisation[step.inputs[0]], net.quantisation[step.outputs[0]]
    if any((source, result) == other[:2] for other in net.tables):
        raise NotForVela("another function in the region has the same quantisations")
    data = net.tensors[step.inputs[0]]
    made = net.write(step.outputs[0], net.file.shape_of(data))
    net.file.operator("HARD_SWISH", (data,), made, "HardSwishOptions")
    net.tables.append((source, result, op.table))


WRITERS: Mapping[type, Callable[[_Network, Step, Any], None]] = {
    Conv2D: _layer,
    DepthwiseConv2D: _layer,
    FullyConnected: _dense,
    Add: _pair,
    Multiply: _pair,
    AveragePool: _pool,
    MaxPool: _pool,
    Mean: _mean,
    Pad: _pad,
    ResizeNearest: _resize,
    Concatenate: _concatenate,
    Lookup: _lookup,
}
"""The operators that have a form in TFLite that means the same, to the last bit."""
