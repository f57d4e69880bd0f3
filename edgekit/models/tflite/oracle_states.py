"""Let LiteRT take and give the state of a model, so that each of its calls stands for itself.

LiteRT keeps variables inside its interpreter. Variable tensors are tensors of the main graph. For
variables behind handles two graphs are added to its copy of the file: one assigns them, the other
reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.base.arrays import Array
from edgekit.models.tflite.states import State

WRITE, READ = "edgekit_write_state", "edgekit_read_state"


def with_access(content: bytes, states: Sequence[State]) -> bytes:
    """Return the file with a signature that assigns the states and one that reads them."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    model.signatureDefs = list(model.signatureDefs or [])
    for key in (WRITE, READ):
        model.subgraphs.append(_accessing(schema, model, states, writes=key == WRITE))
        model.signatureDefs.append(_signature(schema, model, key, len(states)))
    builder = flatbuffers.Builder(len(content) + 4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _accessing(schema: Any, model: Any, states: Sequence[State], *, writes: bool) -> Any:
    """Make a graph with one tensor for each state, in order, and then their handles."""
    graph = schema.SubGraphT()
    values = [_tensor(schema, state) for state in states]
    handles = []
    graph.operators = []
    for place, state in enumerate(states):
        handle = schema.TensorT()
        handle.name, handle.type, handle.shape = b"handle", schema.TensorType.RESOURCE, []
        handles.append(handle)
        options = schema.VarHandleOptionsT()
        container, shared = state.variable.key
        options.container, options.sharedName = container, shared
        at = len(states) + place
        made = _operator(schema, model, "VAR_HANDLE", [], [at])
        made.builtinOptionsType = schema.BuiltinOptions.VarHandleOptions
        made.builtinOptions = options
        moved = (
            _operator(schema, model, "ASSIGN_VARIABLE", [at, place], [])
            if writes
            else _operator(schema, model, "READ_VARIABLE", [at], [place])
        )
        graph.operators += [made, moved]
    graph.tensors = [*values, *handles]
    graph.inputs = list(range(len(states))) if writes else []
    graph.outputs = [] if writes else list(range(len(states)))
    return graph


def _tensor(schema: Any, state: State) -> Any:
    kinds = {"float32": "FLOAT32", "float16": "FLOAT16", "bool": "BOOL"}
    dtype = state.input.dtype
    tensor = schema.TensorT()
    tensor.name = state.input.name.encode()
    tensor.type = getattr(schema.TensorType, kinds.get(dtype, dtype.upper()))
    tensor.shape = list(state.input.shape)
    found = state.variable.quantization
    if found is not None:
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale = list(found.scales)
        tensor.quantization.zeroPoint = list(found.zero_points)
        tensor.quantization.quantizedDimension = found.axis or 0
    return tensor


def _operator(schema: Any, model: Any, name: str, inputs: list[int], outputs: list[int]) -> Any:
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.deprecatedBuiltinCode, code.version = 127, 1
    operator = schema.OperatorT()
    operator.opcodeIndex = len(model.operatorCodes)
    operator.inputs, operator.outputs = inputs, outputs
    model.operatorCodes.append(code)
    return operator


def _signature(schema: Any, model: Any, key: str, count: int) -> Any:
    signature = schema.SignatureDefT()
    signature.signatureKey = key.encode()
    signature.subgraphIndex = len(model.subgraphs) - 1
    named = []
    for place in range(count):
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = name_of(place).encode(), place
        named.append(entry)
    signature.inputs, signature.outputs = (named, []) if key == WRITE else ([], named)
    return signature


def name_of(place: int) -> str:
    return f"state_{place}"


def write(interpreter: Any, states: Sequence[State], inputs: Mapping[str, Array]) -> None:
    handled: dict[str, Array] = {}
    for state in states:
        value = inputs[state.input.name]
        if state.variable.tensor >= 0:
            interpreter.set_tensor(state.variable.tensor, value)
        else:
            handled[name_of(len(handled))] = value
    if handled:
        interpreter.get_signature_runner(WRITE)(**handled)


def read(interpreter: Any, states: Sequence[State]) -> list[Array]:
    values = []
    handled = sum(state.variable.tensor < 0 for state in states)
    found = interpreter.get_signature_runner(READ)() if handled else {}
    waiting = iter(range(handled))
    for state in states:
        if state.variable.tensor >= 0:
            values.append(interpreter.get_tensor(state.variable.tensor))
        else:
            values.append(found[name_of(next(waiting))])
    return values
