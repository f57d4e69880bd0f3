"""Find the roundings of an ONNX model, and nudge them.

Runtimes whose sums differ in the last bit may round a float between two integers differently. Later
layers turn that into whole steps. A model with roundings nudged by less than the error of float32
sums shows how large the difference gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.models.onnx.nudging import SELECTS

_SCALE_OF_RESULT: Mapping[str, int] = {
    "QuantizeLinear": 1,
    "QLinearConv": 6,
    "QLinearMatMul": 6,
    "QLinearAdd": 6,
    "QLinearMul": 6,
    "QGemm": 7,
    "QLinearWhere": 7,
    "QLinearAveragePool": 3,
    "QLinearGlobalAveragePool": 3,
    "QLinearLeakyRelu": 3,
    "QLinearSigmoid": 3,
    "QLinearSoftmax": 3,
    "QLinearConcat": 0,
}
"""The input of each rounding operator with the scale of its result."""
_BY_RANGE = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")
_NUDGES = (2.0**-18, -(2.0**-18))
"""The relative nudges: about the error of float32 sums of a few hundred elements."""
_NUDGES_OF_HALVES = (2.0**-10, -(2.0**-10))
_SCATTER = 12345.0
"""The factor that makes the sines of similar elements random."""


def rounds(graph: onnx.GraphProto) -> bool:
    """Tell whether the graph quantises anything that it computes."""
    return any(
        node.op_type in _SCALE_OF_RESULT or node.op_type in _BY_RANGE for _, node in _nodes(graph)
    )


def nudged(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Yield the model with all roundings nudged up, and with all nudged down."""
    for direction in range(len(_NUDGES)):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        constants = _constants(changed.graph)
        for number, (graph, node) in enumerate([*_nodes(changed.graph)]):
            name = f"edgekit_nudge_{number}"
            if node.op_type in _BY_RANGE:
                _scatter(graph, node, name, _NUDGES[direction])
            elif node.op_type in _SCALE_OF_RESULT:
                place = _SCALE_OF_RESULT[node.op_type]
                scale = constants.get(node.input[place]) if place < len(node.input) else None
                if scale is not None:
                    tensor = numpy_helper.from_array(_nudge(scale, direction), name)
                    changed.graph.initializer.append(tensor)
                    node.input[place] = name
        yield changed


def steps_of_outputs(graph: onnx.GraphProto) -> Mapping[str, tuple[float, str]]:
    """Return the largest step of each float output whose last operator rounds, and the name of the
    DequantizeLinear that gives it."""
    makers = {name: node for node in graph.node for name in node.output if name}
    constants = _constants(graph)
    found = {}
    for item in graph.output:
        node = _maker(item.name, makers)
        if node is None or node.op_type != "DequantizeLinear":
            continue
        before = _maker(node.input[0], makers)
        scale = constants.get(node.input[1])
        if before is not None and before.op_type in _SCALE_OF_RESULT and scale is not None:
            found[item.name] = (float(np.abs(scale).max(initial=0.0)), node.name or node.output[0])
    return found


def _maker(name: str, makers: Mapping[str, onnx.NodeProto]) -> onnx.NodeProto | None:
    """Return the node that computes a tensor's elements, behind nodes that only select them."""
    node = makers.get(name)
    while node is not None and node.op_type in SELECTS:
        node = makers.get(node.input[0])
    return node


def _nodes(graph: onnx.GraphProto) -> Iterator[tuple[onnx.GraphProto, onnx.NodeProto]]:
    for node in graph.node:
        yield graph, node
        for attribute in node.attribute:
            inner: Sequence[onnx.GraphProto] = (
                [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
            )
            for body in inner:
                yield from _nodes(body)


def _constants(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Return the known scalars and vectors by name; scales are never larger."""
    found = {}
    for owner in {id(owner): owner for owner, _ in _nodes(graph)}.values():
        for tensor in owner.initializer:
            if len(tensor.dims) <= 1:
                found[tensor.name] = numpy_helper.to_array(tensor)
        for node in owner.node:
            value = next((item.t for item in node.attribute if item.name == "value"), None)
            if node.op_type == "Constant" and value is not None and len(value.dims) <= 1:
                found[node.output[0]] = numpy_helper.to_array(value)
    return found


def _nudge(scale: np.ndarray, direction: int) -> np.ndarray:
    nudges = _NUDGES if scale.dtype.itemsize >= 4 else _NUDGES_OF_HALVES
    changed: np.ndarray = (scale.astype("float64") * (1.0 + nudges[direction])).astype(scale.dtype)
    return changed


def _scatter(graph: onnx.GraphProto, node: onnx.NodeProto, name: str, size: float) -> None:
    """Nudge each element by its own share: a measured range would follow elements that all move
    alike."""
    numbers = {f"{name}_far": _SCATTER, f"{name}_size": size}
    for key, value in numbers.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value, "float32"), key))
    source, steps = node.input[0], [f"{name}_{word}" for word in ("a", "b", "c", "d", "e")]
    added = [
        helper.make_node("Mul", [source, f"{name}_far"], [steps[0]]),
        helper.make_node("Sin", [steps[0]], [steps[1]]),
        helper.make_node("Mul", [steps[1], f"{name}_size"], [steps[2]]),
        helper.make_node("Mul", [source, steps[2]], [steps[3]]),
        helper.make_node("Add", [source, steps[3]], [steps[4]]),
    ]
    place = next(i for i, other in enumerate(graph.node) if other is node)
    for offset, extra in enumerate(added):
        graph.node.insert(place + offset, extra)
    graph.node[place + len(added)].input[0] = steps[4]
