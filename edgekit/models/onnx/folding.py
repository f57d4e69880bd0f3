"""Fold nodes with known inputs at import.

With every shape known, the subgraphs that compute shapes (Shape, Gather, Concat, ...) have only
known inputs; so have transposed or reshaped weights. The `onnx` package's reference implementation
runs each such node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import onnx
import onnx.shape_inference
from onnx.reference import ReferenceEvaluator

LARGEST_GROWTH = 1 << 20
"""The most bytes by which a folded result may exceed its inputs; more would bloat the model."""

KEPT = frozenset({"QuantizeLinear", "DequantizeLinear", "Identity"})
"""Operators that are not folded: quantised weights stay quantised, for code that runs on int8."""

COMPUTED = frozenset(
    (
        *("Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool", "GlobalAveragePool"),
        *("GlobalMaxPool", "GlobalLpPool", "Resize", "Upsample", "GridSample", "RoiAlign"),
        *("LSTM", "GRU", "RNN"),
    )
)
"""Operators that move windows over data. They run on the device, whose kernels are compared with
onnxruntime: onnx's reference implementation adds a sixth axis to GlobalMaxPool of five axes."""


def fold(
    node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opsets: Mapping[str, int]
) -> list[np.ndarray] | None:
    """Return the node's outputs; None if it must be computed on the device."""
    if node.op_type in KEPT | COMPUTED or not _is_deterministic(node, opsets):
        return None
    given = sum(value.nbytes for value in inputs if value is not None)
    if announced_elements(node.op_type, inputs) > given + LARGEST_GROWTH:
        return None  # before it allocates the memory
    outputs = evaluate(node, inputs, opsets)
    if outputs is None:
        return None
    if sum(value.nbytes for value in outputs) > given + LARGEST_GROWTH:
        return None
    return outputs


def announced_elements(operator: str, inputs: Sequence[np.ndarray | None]) -> int:
    """Return the size of the result of an operator that expands small inputs."""
    first, second = [*inputs, None, None][:2]
    if operator == "ConstantOfShape" and first is not None:
        return math.prod(max(int(extent), 0) for extent in first.reshape(-1))
    if operator in ("Expand", "Tile") and first is not None and second is not None:
        wanted = math.prod(max(int(extent), 1) for extent in second.reshape(-1))
        return wanted * first.size if operator == "Tile" else wanted
    return 0


def evaluate(
    node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opsets: Mapping[str, int]
) -> list[np.ndarray] | None:
    """Run one node; return None if the reference implementation can't."""
    graph = onnx.GraphProto(name="constant")
    graph.node.append(node)
    feeds: dict[str, np.ndarray] = {}
    for name, value in zip(node.input, inputs, strict=True):
        if value is not None and name not in feeds:
            feeds[name] = value
            graph.input.append(_declaration(name, value))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    model = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid(*item) for item in opsets.items()],
        ir_version=10,
    )
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # noqa: BLE001 -- anything it raises means: leave the node to the device
        return None
    named = dict(zip((name for name in node.output if name), results, strict=True))
    if not all(isinstance(value, np.ndarray | np.generic) for value in named.values()):
        return None
    outputs = {name: np.asarray(value) for name, value in named.items()}
    if not all(_is_declared(item, outputs[item.name]) for item in _inferred(model)):
        return None
    return [outputs[name] if name else np.zeros(0) for name in node.output]


def _inferred(model: onnx.ModelProto) -> Sequence[onnx.ValueInfoProto]:
    """Return the outputs' types that the standard implies; empty if it implies none."""
    try:
        return list(onnx.shape_inference.infer_shapes(model).graph.output)
    except onnx.shape_inference.InferenceError:
        return []


def _is_declared(item: onnx.ValueInfoProto, value: np.ndarray) -> bool:
    """Tell whether a result has the type and the shape that the standard implies."""
    tensor = item.type.tensor_type
    if tensor.elem_type and tensor.elem_type != element_type(str(value.dtype)):
        return False
    if not tensor.HasField("shape"):
        return True
    known = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    return len(known) == value.ndim and all(
        extent in (-1, found) for extent, found in zip(known, value.shape, strict=True)
    )


def element_type(dtype: str) -> int:
    """Return ONNX's number of a dtype."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, dtype, dtype))))


def _declaration(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, element_type(str(value.dtype)), value.shape)


def _is_deterministic(node: onnx.NodeProto, opsets: Mapping[str, int]) -> bool:
    version = opsets.get(node.domain)
    if version is None or not onnx.defs.has(node.op_type, version, node.domain):
        return False
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    deterministic = onnx.defs.OpSchema.NodeDeterminism.Deterministic
    return bool(schema.node_determinism == deterministic)
