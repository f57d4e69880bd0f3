"""The TFLite operators that can be imported, and why the others cannot.

The list does not come from TVM, so that a scan needs no TVM and so that tests compare every name on
the list with LiteRT.
"""

from __future__ import annotations

from collections import Counter

from edgekit.models.model import UnsupportedOperator
from edgekit.models.tflite.file import BYTES_PER_ELEMENT, TfliteFile, TfliteGraph, TfliteOperator
from edgekit.models.tflite.states import called_graphs, why_uninitialised

_COMPUTED = """
    ABS ADD ADD_N ARG_MAX ARG_MIN AVERAGE_POOL_2D BATCH_MATMUL CAST CEIL CONCATENATION CONV_2D COS
    CUMSUM DEPTHWISE_CONV_2D DEQUANTIZE DENSIFY DIV ELU EQUAL EXP FILL FLOOR FLOOR_DIV FLOOR_MOD
    FULLY_CONNECTED GELU GREATER GREATER_EQUAL HARD_SWISH L2_NORMALIZATION L2_POOL_2D LEAKY_RELU
    LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC
    LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL NEG NOT_EQUAL ONE_HOT POW PRELU QUANTIZE
    RANK REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6 RELU_0_TO_1
    RELU_N1_TO_1 RESIZE_BILINEAR ROUND RSQRT SELECT SELECT_V2 SHAPE SIGN SIN SOFTMAX SQRT SQUARE
    SQUARED_DIFFERENCE SUB SUM TANH TOPK_V2 TRANSPOSE_CONV ZEROS_LIKE
"""
COMPUTED = frozenset(_COMPUTED.split())
_MOVED = """
    BATCH_TO_SPACE_ND BROADCAST_TO DEPTH_TO_SPACE EXPAND_DIMS GATHER GATHER_ND MIRROR_PAD PACK PAD
    PADV2 RESHAPE RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SLICE SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT
    SPLIT_V SQUEEZE STRIDED_SLICE TILE TRANSPOSE UNPACK
"""
MOVED = frozenset(_MOVED.split())
"""Operators that move values without changing them: quantised values move as they are."""

_COMPUTED_QUANTIZED = """
    ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEQUANTIZE EQUAL
    EXP FULLY_CONNECTED GREATER GREATER_EQUAL HARD_SWISH LEAKY_RELU LESS LESS_EQUAL LOGISTIC
    LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL NOT_EQUAL QUANTIZE REDUCE_MAX REDUCE_MIN RELU
    RELU6 RELU_N1_TO_1 RESIZE_BILINEAR SHAPE SOFTMAX SQUARED_DIFFERENCE SUB TANH TRANSPOSE_CONV
"""
COMPUTED_QUANTIZED = frozenset(_COMPUTED_QUANTIZED.split())
COARSE_IN_16_BITS = frozenset({"EXP", "RESIZE_BILINEAR"})
"""Operators whose results on int16 are far from the real ones in LiteRT."""
TYPES = frozenset(BYTES_PER_ELEMENT) - {"complex64", "float64", "uint16"}
DYNAMIC_RANGE = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
_STATEFUL = """
    BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN LSTM RNN SVDF
    UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN
"""
STATEFUL = frozenset(_STATEFUL.split())
_CALLING = "ASSIGN_VARIABLE CALL CALL_ONCE IF READ_VARIABLE VAR_HANDLE WHILE"
CALLING = frozenset(_CALLING.split())
"""Operators that call graphs or keep variables."""
CONTROL_FLOW = frozenset({"STABLEHLO_CASE", "STABLEHLO_WHILE"})


def unsupported_operators(file: TfliteFile) -> tuple[UnsupportedOperator, ...]:
    """Return every operator that cannot be imported, at its first use."""
    first: dict[tuple[str, str], str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for graph in called_graphs(file):
        for index, operator in enumerate(graph.operators):
            reason = why_unsupported(graph, operator) or why_uninitialised(file, operator)
            if reason is not None:
                first.setdefault((operator.name, reason), place(graph, index))
                counts[operator.name, reason] += 1
    return tuple(
        UnsupportedOperator(name, found, reason, counts[name, reason])
        for (name, reason), found in first.items()
    )


def has_float_input(graph: TfliteGraph, operator: TfliteOperator) -> bool:
    """Tell whether an operator has int8 weights and a float input that LiteRT rounds as it runs."""
    if operator.name not in DYNAMIC_RANGE:
        return False
    source, weights = (graph.tensors[index] for index in operator.inputs[:2])
    stored = weights.quantization if weights.is_constant and weights.dtype == "int8" else None
    around_zero = stored is not None and not any(stored.zero_points)
    return around_zero and source.dtype == "float32" and source.quantization is None


def place(graph: TfliteGraph, index: int) -> str:
    """Describe an operator's place, in the terms of model viewers."""
    outputs = graph.operators[index].outputs
    made = f", making '{graph.tensors[outputs[0]].name}'" if outputs else ""
    return f"operator {index}{made}"


def why_unsupported(graph: TfliteGraph, operator: TfliteOperator) -> str | None:
    name = operator.name
    if name.startswith("CUSTOM:"):
        return "a custom operator exists only in the program it was made for"
    if name in CALLING:
        return None
    if name in STATEFUL:
        return "it keeps state from one run to the next"
    if name in CONTROL_FLOW:
        return "it chooses at run time what is computed"
    if name not in COMPUTED and name not in MOVED:
        return "the compiler has no counterpart for it"
    return _why_types_unsupported(graph, operator)


def _why_types_unsupported(graph: TfliteGraph, operator: TfliteOperator) -> str | None:
    inputs = [graph.tensors[i] for i in operator.inputs if i >= 0]
    outputs = [graph.tensors[i] for i in operator.outputs]
    for tensor in (*inputs, *outputs):
        if tensor.dtype not in TYPES:
            return f"the compiler has no {tensor.dtype} tensors"
    if operator.name in MOVED:
        return None
    quantized_inputs = [tensor for tensor in inputs if tensor.quantization]
    if not quantized_inputs and not any(tensor.quantization for tensor in outputs):
        return None
    if operator.name not in COMPUTED_QUANTIZED:
        return "the compiler has it for float tensors only"
    computed = [tensor for tensor in (*inputs, *outputs) if not tensor.is_constant]
    if operator.name in COARSE_IN_16_BITS and any(tensor.dtype == "int16" for tensor in computed):
        return "LiteRT computes it in 16 bits from coarse tables, which edgekit does not have"
    if has_float_input(graph, operator):
        return None
    if operator.name != "DEQUANTIZE" and not any(tensor.quantization for tensor in computed):
        return "its weights are quantised but its input is float (dynamic range quantisation)"
    return None
