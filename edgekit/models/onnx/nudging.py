"""Nudge every result of an ONNX model by the rounding error of its type.

A correct runtime's results lie about that far apart. Where a float becomes a whole number, a choice
or a float64, such a difference may show, and the nudged model shows where. A nudge parts results
that are equal but for their roundings; rounding to fewer digits makes them equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES: Mapping[int, float] = {
    TensorProto.FLOAT16: 2.0**-11,
    TensorProto.BFLOAT16: 2.0**-8,
    TensorProto.FLOAT: 2.0**-18,
    TensorProto.DOUBLE: 2.0**-45,
}
"""The relative error of a result of each type: of one rounding for the half-precision types, of a
sum of a few hundred elements for the others."""
HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
FLOATS = frozenset(SIZES) - HALVES

SELECTS = (
    *("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Relu", "Clip"),
    *("MaxPool", "Slice", "Gather", "GatherElements", "GatherND", "Expand", "Tile", "Split"),
    *("ReduceMax", "ReduceMin", "GlobalMaxPool", "DepthToSpace", "SpaceToDepth", "Dropout"),
)
"""Operators whose results are elements of their first input, possibly clipped."""
_EXACT = frozenset(
    (
        *SELECTS,
        *("Abs", "Neg", "Max", "Min", "Concat", "Pad", "Where", "Trilu", "Hardmax", "TopK"),
        *("Floor", "Ceil", "Round", "Sign", "Constant", "ConstantOfShape", "Range", "EyeLike"),
        *("OneHot", "ReverseSequence", "ScatterElements", "ScatterND", "Compress", "Unique"),
        *("If", "Loop", "Scan", "SequenceAt", "QuantizeLinear", "DequantizeLinear"),
        "DynamicQuantizeLinear",
    )
)
"""Operators whose results are rounded nowhere, or by rules that `rounding.py` knows."""
_DECIDES = frozenset(
    (
        *("ArgMax", "ArgMin", "TopK", "Hardmax", "Floor", "Ceil", "Round", "Sign", "Mod"),
        *("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "NonZero", "Unique"),
        *("NonMaxSuppression", "ThresholdedRelu", "Shrink", "GridSample"),
    )
)
"""Operators whose results jump where their operands change a little."""
_SCATTER = 1e8
"""The factor that makes the signs of the sines of similar elements random."""
_FARTHEST = 1e15
"""The largest argument of a sine: infinity has none."""


def types_of(model: onnx.ModelProto) -> Mapping[str, int]:
    """Return the element types of the main graph's tensors, as far as the standard implies
    them."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except (onnx.shape_inference.InferenceError, ValueError):
        return {}
    found = {item.name: item.data_type for item in graph.initializer}
    for item in (*graph.value_info, *graph.input, *graph.output):
        found[item.name] = item.type.tensor_type.elem_type
    return found


def decides(graph: onnx.GraphProto, types: Mapping[str, int]) -> bool:
    """Tell whether floats become whole numbers, choices, or floats of more precision."""
    return any(
        types.get(source) in SIZES
        and (
            node.op_type in _DECIDES
            or (node.op_type == "Cast" and _shows(types[source], types.get(node.output[0])))
        )
        for node in graph.node
        for source in node.input
    )


def _shows(source: int, target: int | None) -> bool:
    """Tell whether a cast makes a small difference a large one."""
    if target == TensorProto.DOUBLE:
        return source != target
    return target not in SIZES


Replacement = Callable[[onnx.GraphProto, str, str, int], list[onnx.NodeProto]]
"""Nodes that compute the second tensor from the first, which has the type given."""


def with_nudged_results(
    model: onnx.ModelProto, types: Mapping[str, int], kinds: Iterable[int], sign: float
) -> onnx.ModelProto:
    """Return the model with every result of a type in `kinds` nudged, each element up or down by
    a sign of its own: elements that all move alike stay in the same order."""
    return _with_results(model, types, kinds, partial(_nudge, sign=sign))


def with_coarse_results(
    model: onnx.ModelProto, types: Mapping[str, int], kinds: Iterable[int]
) -> onnx.ModelProto:
    """Return the model with every result of a type in `kinds` rounded to the digits that a nudge
    leaves: results that only their roundings tell apart become equal, as in a precise runtime. In
    half precision they become those of a runtime that rounds each of them."""
    return _with_results(model, types, kinds, _coarsen)


def _with_results(
    model: onnx.ModelProto, types: Mapping[str, int], kinds: Iterable[int], replace: Replacement
) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    nodes: list[onnx.NodeProto] = []
    for node in changed.graph.node:
        nodes.append(node)
        if node.op_type in _EXACT or (node.op_type == "Cast" and not HALVES.issuperset(kinds)):
            continue
        for place, name in enumerate(node.output):
            kind = types.get(name, 0)
            if name and kind in kinds:
                node.output[place] = f"{name}/edgekit_exact"
                nodes += replace(changed.graph, node.output[place], name, kind)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del changed.graph.node[:]
    changed.graph.node.extend(kept)
    del changed.graph.value_info[:]
    return changed


def _nudge(
    graph: onnx.GraphProto, source: str, target: str, kind: int, sign: float
) -> list[onnx.NodeProto]:
    """Return nodes that compute x * (1 + size * sign(sin(x * far)))."""
    numbers = {
        "far": _SCATTER,
        "most": _FARTHEST,
        "least": -_FARTHEST,
        "size": sign * SIZES[kind],
        "one": 1.0,
    }
    steps = (
        ("Mul", source, "far", "a"),
        ("Min", "a", "most", "b"),
        ("Max", "b", "least", "c"),
        ("Sin", "c", "", "d"),
        ("Sign", "d", "", "e"),
        ("Mul", "e", "size", "f"),
        ("Add", "f", "one", "g"),
        ("Mul", source, "g", target),
    )
    return _computed(graph, source, target, kind, numbers, steps)


def _coarsen(graph: onnx.GraphProto, source: str, target: str, kind: int) -> list[onnx.NodeProto]:
    """Return nodes that compute a - (a - x) with a = x * (2^n + 1): x without its last n bits. An
    x for which that overflows stays as it is."""
    digits = 53 if kind == TensorProto.DOUBLE else 24
    numbers = {"split": SIZES[kind] * 2.0**digits + 1.0}
    steps = (
        ("Mul", source, "split", "a"),
        ("Sub", "a", source, "b"),
        ("Sub", "a", "b", "c"),
        ("IsNaN", "c", "", "d"),
        ("Where", "d", source, "c", target),
    )
    return _computed(graph, source, target, kind, numbers, steps)


def _computed(
    graph: onnx.GraphProto,
    source: str,
    target: str,
    kind: int,
    numbers: Mapping[str, float],
    steps: Iterable[Sequence[str]],
) -> list[onnx.NodeProto]:
    """Return a node for each step, whose numbers become initializers of the graph."""
    dtype = "float64" if kind == TensorProto.DOUBLE else "float32"
    for word, value in numbers.items():
        tensor = numpy_helper.from_array(np.array(value, dtype), f"{target}/edgekit_{word}")
        graph.initializer.append(tensor)

    def full(word: str) -> str:
        return word if word in (source, target) else f"{target}/edgekit_{word}"

    return [
        helper.make_node(operator, [full(word) for word in operands if word], [full(result)])
        for operator, *operands, result in steps
    ]


_WHOLE: Mapping[int, tuple[int, float, float]] = {
    TensorProto.INT32: (TensorProto.INT32, -(2.0**31), 2.0**31 - 1),
    TensorProto.INT64: (TensorProto.INT64, -(2.0**63), 2.0**63 - 1024),
    **dict.fromkeys(
        (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16),
        (TensorProto.INT32, -(2.0**31), 2.0**31 - 1),
    ),
    TensorProto.UINT32: (TensorProto.INT64, -(2.0**63), 2.0**63 - 1024),
}
"""The type through which a float is cast to a whole number, and its least and largest float64."""


def with_defined_casts(model: onnx.ModelProto, types: Mapping[str, int]) -> onnx.ModelProto:
    """Return the model with docs/verify.md's results of floats beyond the whole numbers that they
    are cast to: ONNX leaves those undefined."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    for node in model.graph.node:
        kind = types.get(node.output[0], 0) if node.output else 0
        if node.op_type != "Cast" or types.get(node.input[0]) not in SIZES or kind not in _WHOLE:
            changed.graph.node.append(node)
            continue
        middle, least, most = _WHOLE[kind]
        target = node.output[0]
        numbers = {"least": least, "most": most, "zero": 0.0}
        for word, value in numbers.items():
            tensor = numpy_helper.from_array(np.array(value), f"{target}/edgekit_{word}")
            changed.graph.initializer.append(tensor)

        def own(word: str, target: str = target) -> str:
            return f"{target}/edgekit_{word}"

        changed.graph.node.extend(
            (
                helper.make_node("Cast", [node.input[0]], [own("a")], to=TensorProto.DOUBLE),
                helper.make_node("IsNaN", [own("a")], [own("b")]),
                helper.make_node("Where", [own("b"), own("zero"), own("a")], [own("c")]),
                helper.make_node("Max", [own("c"), own("least")], [own("d")]),
                helper.make_node("Min", [own("d"), own("most")], [own("e")]),
                helper.make_node("Cast", [own("e")], [own("f")], to=middle),
                helper.make_node("Cast", [own("f")], [target], to=kind),
            )
        )
    return changed
