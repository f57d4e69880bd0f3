"""Convert TFLite operators to Relax with TVM's converter, whose errors are corrected.

TVM's class is subclassed, never patched. Its methods get a tensor's value, expression, shape and
quantisation from `self`; taking those from a checked `TfliteFile` corrects most errors. The
operators that need more are in `layers.py`, `moves.py`, `pooling.py` and `transposed.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tflite
from tvm import ir, relax
from tvm.relax.frontend.tflite.tflite_frontend import ExprTable, OperatorConverter, TensorWrapper

from edgekit.base.arrays import Array
from edgekit.base.errors import EdgekitError, UnsupportedModelError
from edgekit.base.tensors import Quantization
from edgekit.models.naming import NamingBuilder
from edgekit.models.onnx.node import RefusedError
from edgekit.models.onnx.values import Value, is_known
from edgekit.models.tflite import (
    control,
    detection,
    elementwise,
    further,
    layers,
    mediapipe,
    moves,
    pooling,
    recurrent,
    reductions,
    shapes,
    transposed,
)
from edgekit.models.tflite.dynamic_range import rounded, weights_as_floats
from edgekit.models.tflite.file import (
    TfliteFile,
    TfliteGraph,
    TfliteOperator,
    TfliteTensor,
    VariableKey,
)
from edgekit.models.tflite.operators import (
    CHOSEN,
    DETECTION,
    MOVED,
    STATEFUL,
    has_float_input,
    place,
)


class NamedTensor(tflite.Tensor):  # type: ignore[misc]
    """A tensor with a unique name in its graph, because TVM's converter looks up by name."""

    unique_name = ""

    def Name(self) -> bytes:  # noqa: N802 - the schema's accessor
        return self.unique_name.encode()


class NamedSubgraph:
    """A subgraph whose tensors have unique names."""

    def __init__(self, subgraph: tflite.SubGraph, graph: TfliteGraph) -> None:
        self._subgraph = subgraph
        self._graph = graph

    def __getattr__(self, accessor: str) -> Any:
        return getattr(self._subgraph, accessor)

    def Tensors(self, index: int) -> NamedTensor:  # noqa: N802
        plain = self._subgraph.Tensors(index)
        named = NamedTensor()
        named.Init(plain._tab.Bytes, plain._tab.Pos)
        named.unique_name = self._graph.tensors[index].name
        return named


class Converter(OperatorConverter):  # type: ignore[misc]
    """A converter of one checked graph into the builder's open Relax function."""

    def __init__(
        self, file: TfliteFile, builder: NamingBuilder, resized: bool, number: int = 0
    ) -> None:
        model = tflite.Model.GetRootAsModel(file.data, 0)
        self.file = file
        self.graph = file.graphs[number]
        subgraph = NamedSubgraph(model.Subgraphs(number), self.graph)
        super().__init__(model, subgraph, ExprTable(), builder)
        self.convert_map.update(
            AVERAGE_POOL_2D=lambda op: pooling.convert_average_pool(self, op),
            FULLY_CONNECTED=lambda op: layers.convert_fully_connected(self, op),
            SOFTMAX=lambda op: layers.convert_softmax(self, op),
            BATCH_TO_SPACE_ND=lambda op: moves.convert_batch_to_space(self, op),
            EXPAND_DIMS=lambda op: moves.convert_expand_dims(self, op),
            GATHER_ND=lambda op: moves.convert_gather_nd(self, op),
            RESIZE_NEAREST_NEIGHBOR=lambda op: moves.convert_resize_nearest(self, op),
            SPACE_TO_BATCH_ND=lambda op: moves.convert_space_to_batch(self, op),
            TRANSPOSE_CONV=lambda op: transposed.convert_transposed_convolution(self, op),
            **{DETECTION: lambda op: detection.convert(self, op)},
            **elementwise.converters(self, dict(self.convert_map)),
            **reductions.converters(self, dict(self.convert_map)),
            **mediapipe.converters(self),
            **further.converters(self, dict(self.convert_map)),
        )
        self.repairs: list[str] = []
        self._resized = resized
        self._as_floats = -1
        """The tensor of int8 weights that the current operator takes as floats."""
        self._known: dict[int, Array] = {}
        """The tensors whose values are known at import."""
        self._widened: dict[int, Array] = {}
        """The values of tensors that are constants of float16, as float32."""
        self._handles: dict[int, control.Handle] = {}
        """The tensors that stand for variables."""
        self.variables: dict[VariableKey, Value] = {}
        """The values of the variables, which a graph shares with those that it calls."""

    # Called by TVM's methods.

    def dequantize(self, expr: Any, tensor: TensorWrapper) -> Any:
        """Return floats as TVM does; sums of 64 bits, which only constants have, become floats."""
        if self.graph.tensors[tensor.tensor_idx].dtype != "int64":
            return super().dequantize(expr, tensor)
        quantization = self.graph.tensors[tensor.tensor_idx].quantization
        assert quantization is not None  # or TVM would not ask
        return relax.const(weights_as_floats(self.get_tensor_value(tensor), quantization))

    def get_tensors(self, indices: Iterable[int]) -> list[TensorWrapper]:
        """Return tensors as TVM does, but keep float tensors with leftover scales as floats."""
        return [self._wrapper(int(index)) for index in self._indices_or_empty(indices)]

    def _wrapper(self, index: int) -> TensorWrapper:
        if index < 0:
            return TensorWrapper(index, 0, 0)
        tensor = self.subgraph.Tensors(index)
        quantization = self.graph.tensors[index].quantization
        parameters = _quantization_parameters(None if index == self._as_floats else quantization)
        return TensorWrapper(index, tensor, self.model.Buffers(tensor.Buffer()), parameters)

    def get_tensor_value(self, tensor_wrapper: TensorWrapper, is_sparse: bool = False) -> Array:
        index = tensor_wrapper.tensor_idx
        if index in self._known:
            return self._known[index]
        if self.is_prefetched(index):
            dense: Array = self.get_prefetched_node(index)
            return dense
        if index in self._widened:
            return self._widened[index]
        if not self.graph.tensors[index].is_constant:
            raise ValueError(
                f"'{self.graph.tensors[index].name}' is computed when the model runs; "
                "it has to be a constant here"
            )
        value: Array = super().get_tensor_value(tensor_wrapper, is_sparse)
        return value

    def get_expr(self, input_tensor_idx: int) -> ir.RelaxExpr:
        """Return an expression as TVM does, also if an operator's data is a constant."""
        if self.has_expr(input_tensor_idx) or self.is_prefetched(input_tensor_idx):
            return super().get_expr(input_tensor_idx)
        return self.get_tensor_expr(self._wrapper(input_tensor_idx))

    def get_tensor_shape(self, tensor_wrapper: TensorWrapper) -> Array:
        """Return the computed shape, which differs from the declared one if inputs are resized."""
        index = tensor_wrapper.tensor_idx
        if self.has_expr(index):
            return np.array(static_shape(super().get_expr(index)), np.int64)
        if index in self._known:
            return np.array(self._known[index].shape, np.int64)
        return np.array(self.graph.tensors[index].shape, np.int64)

    def convert_qnn_fused_activation_function(
        self, expr: Any, fused_activation_fn: int, scale: float, zero_point: int, dtype: str
    ) -> Any:
        """Clip between stored values, rounded as LiteRT rounds; TVM rounds ties to even.

        A clip to the whole range of the type is left out.
        """
        if fused_activation_fn not in _CUT_OFF:
            return super().convert_qnn_fused_activation_function(
                expr, fused_activation_fn, scale, zero_point, dtype
            )
        limits = np.iinfo(dtype)
        low, high = (
            float(limit if real is None else zero_point + _round_half_away(real, scale))
            for real, limit in zip(
                _CUT_OFF[fused_activation_fn], (limits.min, limits.max), strict=True
            )
        )
        if low <= limits.min and high >= limits.max:
            return expr
        return relax.op.clip(expr, min=max(low, limits.min), max=min(high, limits.max))

    # Graphs that call each other.

    def set_value(self, index: int, value: Value) -> None:
        if isinstance(value, control.Handle):
            self._handles[index] = value
        elif is_known(value):
            self._known[index] = value
        else:
            self._check_type(self.graph.tensors[index], value)
            self.exp_tab.set_expr(self.graph.tensors[index].name, value)

    def value(self, index: int) -> Value:
        if index in self._handles:
            return self._handles[index]
        known = self._constant(index)
        return self.get_tensor_expr(self._wrapper(index)) if known is None else known

    def call(self, graph: int, arguments: Sequence[Value]) -> list[Value]:
        tensors = self.file.graphs[graph].tensors
        resized = self._resized or any(tensor.open_dimensions for tensor in tensors)
        callee = Converter(self.file, self.bb, resized, graph)
        callee.variables, callee.repairs = self.variables, self.repairs
        for index, argument in zip(callee.graph.inputs, arguments, strict=True):
            callee.set_value(index, argument)
        callee.convert_graph()
        return [callee.value(index) for index in callee.graph.outputs]

    @property
    def builder(self) -> relax.BlockBuilder:
        return self.bb

    def size_of(self, graph: int) -> int:
        return len(self.file.graphs[graph].operators)

    def settle(self, value: Value) -> Value:
        return self.bb.emit(self.bb.normalize(value))

    # The walk over the operators.

    def convert_graph(self) -> None:
        for index, operator in enumerate(self.graph.operators):
            flat = self.subgraph.Operators(index)
            self.bb.node = self._label(operator)
            try:
                if not self._fold(operator, flat):
                    self._convert(operator, flat)
            except EdgekitError:
                raise
            except Exception as error:
                hint = error.hint if isinstance(error, RefusedError) else None
                raise UnsupportedModelError(
                    f"{operator.name} ({place(self.graph, index)}) cannot be imported: "
                    f"{_first_line(error)}",
                    hint=hint or "export the model without this use of the operator",
                ) from error
        self.bb.node = ""

    def _label(self, operator: TfliteOperator) -> str:
        """Return the operator's label: TFLite names no operators, so its first result's name."""
        return self.graph.tensors[operator.outputs[0]].name if operator.outputs else ""

    def outputs(self) -> list[Any]:
        return [self.get_tensor_expr(wrapper) for wrapper in self.get_tensors(self.graph.outputs)]

    def repaired(self, what: str) -> None:
        if what not in self.repairs:
            self.repairs.append(what)

    def _fold(self, operator: TfliteOperator, flat: tflite.Operator) -> bool:
        if operator.name == "SHAPE":
            source = self._wrapper(operator.inputs[0])
            value = shapes.fold_shape(flat, self.get_tensor_shape(source).tolist())
        else:
            constants = [self._constant(index) for index in operator.inputs]
            values = [constant for constant in constants if constant is not None]
            if not values or len(values) < len(constants) or self._is_quantized(operator):
                return False
            folded = shapes.fold(operator.name, flat, values)
            if folded is None:
                return False
            value = folded
        self._known[operator.outputs[0]] = value
        self.repaired("shape arithmetic computed at import")
        return True

    def _constant(self, index: int) -> Array | None:
        if index in self._known:
            return self._known[index]
        if index < 0 or not self.graph.tensors[index].is_constant:
            return None
        tensor = self.graph.tensors[index]
        if tensor.sparse or math.prod(tensor.shape) > shapes.MAX_FOLDED_ELEMENTS:
            return None
        return self.get_tensor_value(self._wrapper(index))

    def _is_quantized(self, operator: TfliteOperator) -> bool:
        return any(self.graph.tensors[i].quantization for i in operator.outputs)

    def _convert(self, operator: TfliteOperator, flat: tflite.Operator) -> None:
        if operator.name in control.CONTROL:
            results = control.CONTROL[operator.name](self, operator)
            for index, value in zip(operator.outputs, results, strict=True):
                self.set_value(index, value)
            return
        if operator.name in MOVED | CHOSEN:
            self._check_moves_unchanged(operator)
        if operator.name == "DEQUANTIZE":
            source = self.graph.tensors[operator.inputs[0]]
            if source.is_constant and source.dtype == "float16" and not source.sparse:
                stored = self.get_tensor_value(self._wrapper(operator.inputs[0]))
                self._widened[operator.outputs[0]] = stored.astype("float32")
        if operator.name in STATEFUL:
            result = recurrent.convert(self, operator, flat)
        elif has_float_input(self.graph, operator):
            result = self._with_rounded_input(operator, flat)
        elif operator.name == "BATCH_MATMUL" and self._is_quantized(operator):
            result = layers.convert_quantised_product(self, flat)
        else:
            result = self.convert_map[operator.name](op=flat)
        if result is None:  # The value is known, and TVM stored it for its readers.
            return
        values = self._emit(result, len(operator.outputs))
        for index, value in zip(operator.outputs, values, strict=True):
            self._check_type(self.graph.tensors[index], value)
            self.exp_tab.set_expr(self.graph.tensors[index].name, value)

    def _with_rounded_input(self, operator: TfliteOperator, flat: tflite.Operator) -> Any:
        """Convert an operator of floats and int8 weights as one of floats alone."""
        source, weights = operator.inputs[:2]
        stored, names = self.graph.tensors[weights], self.exp_tab.exprs
        quantization = stored.quantization
        assert quantization is not None  # has_float_input
        value = self.get_tensor_value(self._wrapper(weights))
        data = self.get_expr(source)
        rank = len(static_shape(data))
        if operator.name == "FULLY_CONNECTED":
            options = tflite.FullyConnectedOptions()
            table = flat.BuiltinOptions()
            options.Init(table.Bytes, table.Pos)
            depth = stored.shape[1]
            if static_shape(data)[-1] != depth:  # LiteRT rounds the rows that it multiplies.
                data, rank = self.settle(relax.op.reshape(data, (-1, depth))), 2
            axes, symmetric = [rank - 1], not options.AsymmetricQuantizeInputs()
        else:
            axes, symmetric = list(range(1, rank)), quantization.axis is None
        before = {index: names.get(self.graph.tensors[index].name) for index in (source, weights)}
        reals = weights_as_floats(value, quantization)
        names[self.graph.tensors[source].name] = rounded(self.bb, data, axes, symmetric)
        names[stored.name] = relax.const(reals, "float32")
        self._as_floats = weights
        try:
            return self.convert_map[operator.name](op=flat)
        finally:
            self._as_floats = -1
            for index, expression in before.items():
                names.pop(self.graph.tensors[index].name)
                if expression is not None:
                    names[self.graph.tensors[index].name] = expression

    def _emit(self, result: Any, count: int) -> Sequence[Any]:
        """Bind the result to a variable, so that several readers do not compute it again."""
        if isinstance(result, relax.Tuple):
            return [self.bb.emit(self.bb.normalize(field)) for field in result.fields]
        value = self.bb.emit(self.bb.normalize(result))
        if isinstance(value.ty, relax.TupleType):
            return [self.bb.emit(relax.TupleGetItem(value, i)) for i in range(count)]
        return [value]

    def _check_moves_unchanged(self, operator: TfliteOperator) -> None:
        """Refuse to move quantised values between tensors with different quantisations."""
        moved = [self.graph.tensors[operator.inputs[operator.name == "SPLIT"]]]
        if operator.name in ("PACK", "DYNAMIC_UPDATE_SLICE"):
            moved = [self.graph.tensors[index] for index in operator.inputs[:2]]
        if operator.name == "PACK":
            moved = [self.graph.tensors[index] for index in operator.inputs]
        if operator.name in CHOSEN:
            moved = [self.graph.tensors[index] for index in operator.inputs[1:]]
        for source in moved:
            for index in operator.outputs:
                if not _same_scale(source.quantization, self.graph.tensors[index].quantization):
                    raise ValueError("its input and output are quantised differently")

    def _check_type(self, declared: TfliteTensor, value: Any) -> None:
        """Check TVM's result against the file: a silent difference would be a wrong model."""
        dtype = str(value.ty.dtype)
        if dtype != declared.dtype:
            raise ValueError(f"it comes out as {dtype}, the file says {declared.dtype}")
        shape = static_shape(value)
        if not self._resized and declared.shape and shape != declared.shape:
            raise ValueError(f"it comes out as {list(shape)}, the file says {list(declared.shape)}")


_CUT_OFF: dict[int, tuple[float | None, float | None]] = {
    tflite.ActivationFunctionType.RELU: (0.0, None),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}
"""The real bounds of fused activations."""


def _round_half_away(real: float, scale: float) -> int:
    steps = float(np.float32(real) / np.float32(scale))
    return math.floor(abs(steps) + 0.5) * (1 if steps >= 0 else -1)


def static_shape(expression: Any) -> tuple[int, ...]:
    """Return the shape of an expression; every dimension must be known."""
    shape = expression.ty.shape
    if shape is None:
        raise ValueError("its shape is only known when the model runs")
    extents = []
    for extent in shape:
        if not hasattr(extent, "value"):
            raise ValueError("its shape is only known when the model runs")
        extents.append(int(extent))
    return tuple(extents)


def variable_name(name: str, index: int) -> str:
    """Return a name that is valid in Relax, C and a file system."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)[:60] + f"_{index}"


def _quantization_parameters(quantization: Quantization | None) -> dict[str, Any] | None:
    if quantization is None:
        return None
    scales, zero_points = quantization.scales, quantization.zero_points
    if quantization.axis is None:
        scale, zero_point = relax.const(scales[0], "float32"), relax.const(zero_points[0], "int32")
    else:
        scale = relax.const(np.array(scales, np.float32))
        shared = zero_points[0] if len(set(zero_points)) == 1 else np.array(zero_points, np.int32)
        zero_point = relax.const(shared, "int32")
    return {"scale": scale, "zero_point": zero_point, "axis": quantization.axis or 0}


def _same_scale(one: Quantization | None, other: Quantization | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.zero_points == other.zero_points and np.allclose(
        one.scales, other.scales, rtol=1e-6, atol=0
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
