"""The TFLite operators that can be imported, and why the others cannot.

The list does not come from TVM, so that a scan needs no TVM and so that tests compare every name on
the list with LiteRT.
"""

from __future__ import annotations

from collections import Counter

from edgekit.models.model import UnsupportedOperator
from edgekit.models.tflite.custom_options import MEDIAPIPE
from edgekit.models.tflite.file import (
    BYTES_PER_ELEMENT,
    TfliteFile,
    TfliteGraph,
    TfliteOperator,
    TfliteTensor,
)
from edgekit.models.tflite.states import called_graphs, why_uninitialised

_COMPUTED = """
    ABS ADD ADD_N ARG_MAX ARG_MIN ATAN2 AVERAGE_POOL_2D BATCH_MATMUL BITWISE_XOR CAST CEIL
    CONCATENATION CONV_2D CONV_3D COS CUMSUM DENSIFY DEPTHWISE_CONV_2D DEQUANTIZE DIV ELU
    EMBEDDING_LOOKUP EQUAL EXP FILL FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GELU GREATER
    GREATER_EQUAL HARD_SWISH L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL
    LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC LOG_SOFTMAX
    MATRIX_DIAG MATRIX_SET_DIAG MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL NEG NOT_EQUAL ONE_HOT POW
    PRELU QUANTIZE REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6
    RELU_0_TO_1 RELU_N1_TO_1 RESIZE_BILINEAR RIGHT_SHIFT ROUND RSQRT SCATTER_ND SEGMENT_SUM SIGN
    SIN SOFTMAX SQRT SQUARE SQUARED_DIFFERENCE SUB SUM TANH TOPK_V2 TRANSPOSE_CONV
    UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM
    ZEROS_LIKE
"""
COMPUTED = frozenset(_COMPUTED.split())
_MOVED = """
    BATCH_TO_SPACE_ND BROADCAST_TO DEPTH_TO_SPACE DYNAMIC_UPDATE_SLICE EXPAND_DIMS GATHER
    GATHER_ND MIRROR_PAD PACK PAD PADV2 RESHAPE RESIZE_NEAREST_NEIGHBOR REVERSE_SEQUENCE
    REVERSE_V2 SLICE SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQUEEZE STRIDED_SLICE TILE
    TRANSPOSE UNPACK
"""
MOVED = frozenset(_MOVED.split())
"""Operators that move values without changing them: quantised values move as they are."""

_DESCRIBED = "RANK SHAPE"
DESCRIBED = frozenset(_DESCRIBED.split())
"""Operators of which only the shape of the input matters."""
_CHOSEN = "SELECT SELECT_V2"
CHOSEN = frozenset(_CHOSEN.split())
"""Operators that take one of two values, which have one quantisation."""

_COMPUTED_QUANTIZED = """
    ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D BATCH_MATMUL CONCATENATION CONV_2D DEPTHWISE_CONV_2D
    DEQUANTIZE EQUAL EXP FULLY_CONNECTED GREATER GREATER_EQUAL HARD_SWISH LEAKY_RELU LESS
    LESS_EQUAL LOGISTIC LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL NOT_EQUAL QUANTIZE
    REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_N1_TO_1 RESIZE_BILINEAR SOFTMAX SQUARED_DIFFERENCE SUB
    TANH TRANSPOSE_CONV
"""
COMPUTED_QUANTIZED = frozenset(_COMPUTED_QUANTIZED.split())
COARSE_IN_16_BITS = frozenset({"EXP", "RESIZE_BILINEAR"})
"""Operators whose results on int16 are far from the real ones in LiteRT."""
COMPARISONS = frozenset(["EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"])
TYPES = frozenset(BYTES_PER_ELEMENT) - {"complex64", "float64", "uint16"}
DYNAMIC_RANGE = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
_STATEFUL = """
    BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN LSTM RNN SVDF
    UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN
"""
STATEFUL = frozenset(_STATEFUL.split())
"""Operators that keep state in variable tensors."""
_SHORTS, _BIASES = (9, 10, 11, 19), (12, 13, 14, 15)
"""The operands of an LSTM of integers that are wider than a byte."""
_CALLING = "ASSIGN_VARIABLE CALL CALL_ONCE IF READ_VARIABLE VAR_HANDLE WHILE"
CALLING = frozenset(_CALLING.split())
"""Operators that call graphs or keep variables."""
DETECTION = "CUSTOM:TFLite_Detection_PostProcess"
"""The one custom operator that LiteRT brings: the end of SSD detectors."""
CUSTOM = frozenset({DETECTION}) | MEDIAPIPE
"""Custom operators whose definition is public."""
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
    if operator.name in CALLING:
        return None
    return why_never(operator.name) or _why_types_unsupported(graph, operator)


def why_never(name: str) -> str | None:
    """Say why no use of an operator can be imported; None if some uses can."""
    if name.startswith("CUSTOM") and name not in CUSTOM:
        return "a custom operator exists only in the program it was made for"
    if name in CALLING:
        return None
    if name in CONTROL_FLOW:
        return "it chooses at run time what is computed"
    if name == "LOCAL_RESPONSE_NORMALIZATION":
        return "LiteRT's kernels for it sum over different channels"
    if name not in CUSTOM | COMPUTED | MOVED | DESCRIBED | CHOSEN | STATEFUL:
        return "the compiler has no counterpart for it"
    return None


def _why_state_unsupported(graph: TfliteGraph, operator: TfliteOperator) -> str | None:
    given = [graph.tensors[i] if i >= 0 else None for i in operator.inputs]
    types = [tensor.dtype for tensor in given if tensor is not None]
    name = operator.name
    is_float = types[0] == "float32" and not {"int16", "uint8"} & set(types)
    if is_float and (name != "SVDF" or types[1] == types[2]):
        return None
    if types[0] == "int8" and name in ("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"):
        return _why_lstm_unsupported(given)
    if name == "SVDF" and types[0] == "int8" and types[2] == types[-1] == "int16":
        return None
    return "the compiler has it for float tensors, with weights of floats or int8"


def _why_lstm_unsupported(given: list[TfliteTensor | None]) -> str | None:
    """Say why an LSTM of integers can't be imported, by its operands."""
    if any(tensor is not None for tensor in given[20:]):
        return "its gates are normalised in integers, which the compiler does not have"
    if any(tensor is not None for tensor in given[16:18]):
        return "its projection is in integers, which the compiler does not have"
    for place, tensor in enumerate(given[:20]):
        wanted = "int16" if place in _SHORTS else "int32" if place in _BIASES else "int8"
        if tensor is not None and tensor.dtype != wanted:
            return f"its operand {place} is {tensor.dtype}; in integers it is {wanted}"
    return None


def _why_types_unsupported(graph: TfliteGraph, operator: TfliteOperator) -> str | None:
    inputs = [graph.tensors[i] for i in operator.inputs if i >= 0]
    outputs = [graph.tensors[i] for i in operator.outputs]
    for tensor in (*inputs, *outputs):
        if tensor.dtype not in TYPES:
            return f"the compiler has no {tensor.dtype} tensors"
    if operator.name.startswith("MATRIX_") and inputs[0].dtype in ("bool", "float16"):
        return f"LiteRT gives no defined result for {inputs[0].dtype}"
    if operator.name in MOVED | DESCRIBED | CHOSEN:
        return None
    if operator.name in CUSTOM:
        kinds = {tensor.dtype for tensor in (*inputs, *outputs)}
        is_float = operator.name == DETECTION or kinds == {"float32"}
        return None if is_float else "MediaPipe has it for float tensors"
    if operator.name in STATEFUL:
        return _why_state_unsupported(graph, operator)
    quantized_inputs = [tensor for tensor in inputs if tensor.quantization]
    if not quantized_inputs and not any(tensor.quantization for tensor in outputs):
        return None
    if operator.name not in COMPUTED_QUANTIZED:
        return "the compiler has it for float tensors only"
    computed = [tensor for tensor in (*inputs, *outputs) if not tensor.is_constant]
    if operator.name in COARSE_IN_16_BITS and any(tensor.dtype == "int16" for tensor in computed):
        return "LiteRT computes it in 16 bits from coarse tables, which edgekit does not have"
    is_compared = operator.name in COMPARISONS and inputs[0].dtype == "int16"
    if is_compared and inputs[0].quantization != inputs[1].quantization:
        return "LiteRT compares stored numbers of 16 bits, whatever their scales are"
    if has_float_input(graph, operator):
        return None
    if operator.name != "DEQUANTIZE" and not any(tensor.quantization for tensor in computed):
        return "its weights are quantised but its input is float (dynamic range quantisation)"
    return None
