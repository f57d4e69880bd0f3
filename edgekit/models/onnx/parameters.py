"""Parameters: inputs of operators that must be known when the model is imported.

A shape, an axis or a count decides the shape of a result, and every shape is fixed at build time.
Most models have these as constants; `--constant NAME=VALUE` makes one of a model's input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx

from edgekit.models.onnx.graph import label, reads, subgraphs

PARAMETERS: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}

DATA_DEPENDENT: Mapping[str, tuple[int, ...]] = {
    "NonMaxSuppression": (0, 1, 2, 3, 4),
    "NonZero": (0,),
    "Unique": (0,),
}
"""Inputs whose values decide the size of the result, but which are data, not parameters."""

SHAPE_ONLY: Mapping[str, tuple[int, ...]] = {
    "CastLike": (1,),
    "EyeLike": (0,),
    "Shape": (0,),
    "Size": (0,),
}
"""Inputs of which only the shape or the dtype is used, both of which are known."""


@dataclass(frozen=True)
class OpenParameter:
    """A parameter that depends on inputs of the model."""

    operator: str
    node: str
    position: int
    inputs: tuple[str, ...]
    """The inputs of the model from which it is computed."""
    direct: bool
    """Whether it is itself an input of the model."""
    data: bool
    """Whether it is data, for which a constant makes little sense."""


SELECTING = frozenset({"Compress", "NonMaxSuppression", "NonZero", "TopK", "Unique"})
"""Operators whose size may be decided by data: lengths/ gives them a buffer and a count."""


def open_parameters(
    nodes: Iterable[onnx.NodeProto], inputs: Iterable[str]
) -> tuple[OpenParameter, ...]:
    """Return the parameters of ordered nodes that depend on the given inputs."""
    origins = {name: frozenset({name}) for name in inputs}
    return tuple(_open_in(nodes, origins, frozenset(origins)))


def _collects_nothing(node: onnx.NodeProto) -> bool:
    """Return whether a node is a loop whose number of iterations decides no shape."""
    if node.op_type != "Loop":
        return False
    carried = max(len(node.input) - 2, 0)
    return all(len(graph.output) == 1 + carried for graph in subgraphs(node))


def _open_in(
    nodes: Iterable[onnx.NodeProto],
    origins: dict[str, frozenset[str]],
    inputs: frozenset[str],
) -> list[OpenParameter]:
    found = []
    for node in nodes:
        data = node.op_type in DATA_DEPENDENT
        table = DATA_DEPENDENT if data else PARAMETERS
        for position in () if _collects_nothing(node) else table.get(node.op_type, ()):
            if position >= len(node.input) or not origins.get(node.input[position]):
                continue
            name = node.input[position]
            found.append(
                OpenParameter(
                    node.op_type,
                    label(node),
                    position,
                    tuple(sorted(origins[name])),
                    name in inputs,
                    data,
                )
            )
        passed = {
            name for i, name in enumerate(node.input) if i in SHAPE_ONLY.get(node.op_type, ())
        }
        merged = frozenset[str]().union(
            *(origins.get(name, frozenset()) for name in reads(node) - passed)
        )
        for graph in subgraphs(node):
            inner = dict(origins)
            inner.update({item.name: merged for item in graph.input})
            if node.op_type == "Loop" and graph.input:
                inner[graph.input[0].name] = frozenset()  # the iteration number
            found.extend(_open_in(graph.node, inner, inputs))
        origins.update({name: merged for name in node.output if name})
    return found
