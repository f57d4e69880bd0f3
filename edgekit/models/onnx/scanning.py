"""List the content of an ONNX file, and the parts that can't be compiled, without an import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from edgekit.base.options import option
from edgekit.models.model import ModelScan, ModelSource, OperatorCount, UnsupportedOperator
from edgekit.models.onnx import bodies
from edgekit.models.onnx.binding import declared, true_inputs
from edgekit.models.onnx.control import CONTROL
from edgekit.models.onnx.files import read_program, tensors
from edgekit.models.onnx.graph import all_nodes, domain_of, in_order, label, needed, opsets_of
from edgekit.models.onnx.operators import CONVERTERS, REFUSED
from edgekit.models.onnx.parameters import (
    DATA_DEPENDENT,
    SELECTING,
    OpenParameter,
    open_parameters,
)


@dataclass(frozen=True)
class Unsupported:
    """An operator that can't be compiled, its first node, and a hint."""

    name: str
    node: str
    reason: str
    count: int
    hint: str | None


def scan_model(source: ModelSource) -> ModelScan:
    proto = read_program(source, weights=False)
    inputs = [item for item in true_inputs(proto.graph) if item.name not in source.constants]
    counts = Counter(
        _display_name(node) for node in all_nodes(proto.graph.node) if not _is_constant(node)
    )
    stored = [tensor for tensor in tensors(proto) if tensor.data_type != onnx.TensorProto.STRING]
    sizes = [_elements(tensor) for tensor in stored]
    found = unsupported_operators(proto, [item.name for item in inputs])
    return ModelScan(
        inputs=declared(inputs),
        outputs=declared(list(proto.graph.output)),
        operators=tuple(OperatorCount(name, count) for name, count in counts.most_common()),
        parameters=sum(sizes),
        parameter_bytes=sum(
            -(-size * _bits(tensor.data_type) // 8)
            for size, tensor in zip(sizes, stored, strict=True)
        ),
        unsupported=tuple(
            UnsupportedOperator(item.name, item.node, item.reason, item.count) for item in found
        ),
    )


def _is_constant(node: onnx.NodeProto) -> bool:
    """Tell whether a node only stores a constant, which counts as a parameter."""
    return domain_of(node) == "" and node.op_type == "Constant"


def unsupported_operators(proto: onnx.ModelProto, inputs: Sequence[str]) -> tuple[Unsupported, ...]:
    """Return operators that can't be compiled, and those whose parameters are model inputs.

    Nodes on which no output depends are left out, because they are never imported.
    """
    opsets = opsets_of(proto)
    functions = {(domain_of(function), function.name) for function in proto.functions}
    live = needed(in_order(proto.graph.node)[0], [item.name for item in proto.graph.output])
    inner = [node for function in proto.functions for node in function.node]
    missing: dict[str, Unsupported] = {}
    for node in all_nodes([*live, *inner]):
        key = (domain_of(node), node.op_type)
        if key in functions or is_supported(*key, opsets):
            continue
        name = _display_name(node)
        earlier = missing.get(name)
        reason, hint = REFUSED.get(
            key, ("edgekit has no way to compile this operator", "export the model without it")
        )
        missing[name] = Unsupported(
            name,
            earlier.node if earlier else label(node),
            reason,
            earlier.count + 1 if earlier else 1,
            hint,
        )
    found = [one for one in open_parameters(live, inputs) if one.operator not in SELECTING]
    return (*missing.values(), *_open(found))


def decides_sizes(proto: onnx.ModelProto, inputs: Sequence[str]) -> bool:
    """Return whether data decides the size of a tensor in the graph."""
    live = needed(in_order(proto.graph.node)[0], [item.name for item in proto.graph.output])
    return any(one.operator in SELECTING for one in open_parameters(live, inputs))


def is_supported(domain: str, operator: str, opsets: dict[str, int]) -> bool:
    if (domain, operator) in REFUSED:
        return False
    if domain == "" and (operator in CONTROL or operator in DATA_DEPENDENT):
        return True
    if (domain, operator) in CONVERTERS:
        return True
    return bodies.has_body(operator, domain, opsets.get(domain, 1))


def _open(parameters: Sequence[OpenParameter]) -> list[Unsupported]:
    """Return for each operator its first node's parameter that depends on model inputs."""
    found: dict[str, Unsupported] = {}
    counts = Counter(item.operator for item in parameters)
    for item in parameters:
        if item.operator in found:
            continue
        found[item.operator] = Unsupported(
            item.operator, item.node, *_why_open(item, counts[item.operator])
        )
    return list(found.values())


def _why_open(item: OpenParameter, count: int) -> tuple[str, int, str]:
    names = " and ".join(repr(name) for name in item.inputs)
    if item.data:
        return (
            "the size of its output depends on the data, and every size is fixed at build time",
            count,
            "export the model without it, and do this step on the model's outputs",
        )
    computed = "is" if item.direct else "is computed from"
    options = " ".join(option("constant", f"{name}=VALUE") for name in item.inputs)
    return (
        f"its input {item.position} decides shapes, so it has to be known when the model is "
        f"compiled, and it {computed} the model input {names}",
        count,
        f"bind it to a value: {options}",
    )


def _display_name(node: onnx.NodeProto) -> str:
    domain = domain_of(node)
    return f"{domain}.{node.op_type}" if domain else str(node.op_type)


def _elements(tensor: onnx.TensorProto) -> int:
    count = 1
    for extent in tensor.dims:
        count *= int(extent)
    return count


def _bits(data_type: int) -> int:
    name = onnx.TensorProto.DataType.Name(data_type)
    return next((bits for suffix, bits in _SMALL_BITS if name.endswith(suffix)), None) or (
        onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize * 8
    )


_SMALL_BITS = (("INT4", 4), ("INT2", 2), ("FLOAT4E2M1", 4))
