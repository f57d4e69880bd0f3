"""Writes a network of int8 tensors as a TFLite file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.backends.ethos_u.quantisation import Quantisation

if TYPE_CHECKING:
    from edgekit.base.arrays import Array


class TfliteWriter:
    """Collects tensors and operators; a tensor is its number."""

    def __init__(self) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self._schema: Any = schema
        self._model = schema.ModelT()
        self._model.version, self._model.description = 3, b"a region of edgekit's"
        self._model.buffers, self._model.operatorCodes = [schema.BufferT()], []
        self._graph = schema.SubGraphT()
        self._graph.tensors, self._graph.operators = [], []
        self._model.subgraphs = [self._graph]

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        quantisation: Quantisation | None,
        dtype: str = "INT8",
    ) -> int:
        scales = None if quantisation is None else (quantisation.scale,)
        zero_point = 0 if quantisation is None else quantisation.zero_point
        return self._tensor(name, shape, dtype, scales, zero_point, 0)

    def constant(
        self,
        name: str,
        values: Array,
        scales: tuple[float, ...] | None = None,
        zero_point: int = 0,
        axis: int = 0,
    ) -> int:
        import numpy as np

        number = self._tensor(
            name, values.shape, str(values.dtype).upper(), scales, zero_point, axis
        )
        buffer = self._schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
        self._graph.tensors[number].buffer = len(self._model.buffers)
        self._model.buffers.append(buffer)
        return number

    def shape_of(self, tensor: int) -> tuple[int, ...]:
        return tuple(self._graph.tensors[tensor].shape)

    def operator(
        self,
        name: str,
        inputs: tuple[int, ...],
        output: int,
        table: str = "",
        options: Mapping[str, Any] | None = None,
        version: int = 1,
    ) -> None:
        schema = self._schema
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self._model.operatorCodes)
        self._model.operatorCodes.append(code)
        operator.inputs, operator.outputs = list(inputs), [output]
        if table:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, table)
            operator.builtinOptions = getattr(schema, f"{table}T")()
            for field, value in (options or {}).items():
                setattr(operator.builtinOptions, field, value)
        self._graph.operators.append(operator)

    def finish(self, inputs: list[int], outputs: list[int]) -> bytes:
        import flatbuffers

        self._graph.inputs, self._graph.outputs = inputs, outputs
        builder = flatbuffers.Builder(1024)
        builder.Finish(self._model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        scales: tuple[float, ...] | None,
        zero_point: int,
        axis: int,
    ) -> int:
        tensor = self._schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name.encode(), list(shape), 0
        tensor.type = getattr(self._schema.TensorType, dtype)
        if scales is not None:
            tensor.quantization = self._schema.QuantizationParametersT()
            tensor.quantization.scale = list(scales)
            tensor.quantization.zeroPoint = [zero_point] * len(scales)
            tensor.quantization.quantizedDimension = axis
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1
