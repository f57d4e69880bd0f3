"""ncnn's layers: the numbers of their parameters, and the order in which weights are read."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from edgekit.backends.base import Setting

if TYPE_CHECKING:
    from edgekit.base.arrays import Array

Numbers = Mapping[str, int]

Precision = Literal["fp32", "fp16"]

_NO_TAG = struct.pack("<I", 0)
_FP16_TAG = struct.pack("<I", 0x01306B47)
_INT8_TAG = struct.pack("<I", 0x000D4B38)
_END = -233
_ARRAY = -23300


@dataclass(frozen=True)
class Stored:
    """A weight in the form that ncnn's loader reads."""

    name: str
    tagged: bool = True
    """Whether a tag before the weight gives its precision; without one it is fp32."""


@dataclass(frozen=True)
class Kind:
    """A layer of ncnn, by its name in `ncnn::LayerType`."""

    numbers: Numbers = field(default_factory=dict)
    weights: tuple[Stored, ...] = ()


_ACTIVATION = {"activation_type": 9, "activation_params": 10}
_WINDOW = {
    "num_output": 0,
    "kernel_w": 1,
    "dilation_w": 2,
    "stride_w": 3,
    "pad_left": 4,
    "bias_term": 5,
    "weight_data_size": 6,
    "int8_scale_term": 8,
    "pad_right": 15,
    "pad_value": 18,
    **_ACTIVATION,
}
_WINDOW_2D = {
    **_WINDOW,
    "kernel_h": 11,
    "dilation_h": 12,
    "stride_h": 13,
    "pad_top": 14,
    "pad_bottom": 16,
}
_GROUP = {"group": 7}
_WEIGHT_AND_BIAS = (
    Stored("weight"),
    Stored("bias", tagged=False),
    # Layers that compute in integers:
    Stored("weight_scales", tagged=False),
    Stored("input_scale", tagged=False),
    Stored("output_scale", tagged=False),
)
_POOLING = {
    "pooling_type": 0,
    "kernel_w": 1,
    "stride_w": 2,
    "pad_left": 3,
    "global_pooling": 4,
    "pad_mode": 5,
    "avgpool_count_include_pad": 6,
    "adaptive_pooling": 7,
    "out_w": 8,
    "pad_right": 14,
}
_AFFINE = (Stored("gamma", tagged=False), Stored("beta", tagged=False))
_EXTENTS = {"w": 0, "h": 1, "c": 2, "d": 11}

KINDS: Mapping[str, Kind] = {
    "ArgMax": Kind({"out_max_val": 0, "topk": 1}),
    "BinaryOp": Kind({"op_type": 0, "with_scalar": 1, "b": 2}),
    "CELU": Kind({"alpha": 0}),
    "Clip": Kind({"min": 0, "max": 1}),
    "Concat": Kind({"axis": 0}),
    "Convolution": Kind(_WINDOW_2D, _WEIGHT_AND_BIAS),
    "Convolution1D": Kind(_WINDOW, _WEIGHT_AND_BIAS),
    "ConvolutionDepthWise": Kind({**_WINDOW_2D, **_GROUP}, _WEIGHT_AND_BIAS),
    "ConvolutionDepthWise1D": Kind({**_WINDOW, **_GROUP}, _WEIGHT_AND_BIAS),
    "Crop": Kind({"starts": 9, "ends": 10, "axes": 11}),
    "Deconvolution": Kind(_WINDOW_2D, _WEIGHT_AND_BIAS),
    "Deconvolution1D": Kind(_WINDOW, _WEIGHT_AND_BIAS),
    "DeconvolutionDepthWise": Kind({**_WINDOW_2D, **_GROUP}, _WEIGHT_AND_BIAS),
    "DeconvolutionDepthWise1D": Kind({**_WINDOW, **_GROUP}, _WEIGHT_AND_BIAS),
    "ELU": Kind({"alpha": 0}),
    "Erf": Kind(),
    "Flip": Kind({"axes": 0}),
    "GELU": Kind({"fast_gelu": 0}),
    "GroupNorm": Kind({"group": 0, "channels": 1, "eps": 2, "affine": 3}, _AFFINE),
    "HardSigmoid": Kind({"alpha": 0, "beta": 1}),
    "HardSwish": Kind({"alpha": 0, "beta": 1}),
    "InnerProduct": Kind(
        {"num_output": 0, "bias_term": 1, "weight_data_size": 2, "int8_scale_term": 8}
        | _ACTIVATION,
        _WEIGHT_AND_BIAS,
    ),
    "Input": Kind(),
    "InstanceNorm": Kind({"channels": 0, "eps": 1, "affine": 2}, _AFFINE),
    "Interp": Kind({"resize_type": 0, "output_height": 3, "output_width": 4, "align_corner": 6}),
    "LayerNorm": Kind({"affine_size": 0, "eps": 1, "affine": 2}, _AFFINE),
    "MatMul": Kind({"transB": 0}),
    "MemoryData": Kind({**_EXTENTS, "load_type": 21}, (Stored("data", tagged=False),)),
    "Mish": Kind(),
    "PReLU": Kind({"num_slope": 0}, (Stored("slope", tagged=False),)),
    "Padding": Kind(
        {"top": 0, "bottom": 1, "left": 2, "right": 3, "type": 4, "value": 5}
        | {"front": 7, "behind": 8}
    ),
    "Permute": Kind({"order_type": 0}),
    "Pooling": Kind(
        {**_POOLING, "kernel_h": 11, "stride_h": 12, "pad_top": 13, "pad_bottom": 15, "out_h": 18}
    ),
    "Pooling1D": Kind(_POOLING),
    "RMSNorm": Kind({"affine_size": 0, "eps": 1, "affine": 2}, (Stored("gamma", tagged=False),)),
    "ReLU": Kind({"slope": 0}),
    "Reduction": Kind(
        {"operation": 0, "reduce_all": 1, "coeff": 2, "axes": 3, "keepdims": 4, "fixbug0": 5}
    ),
    "Reshape": Kind(_EXTENTS),
    "SELU": Kind({"alpha": 0, "lambda": 1}),
    "Scale": Kind(
        {"scale_data_size": 0, "bias_term": 1},
        (Stored("scale", tagged=False), Stored("bias", tagged=False)),
    ),
    "Sigmoid": Kind(),
    "Slice": Kind({"slices": 0, "axis": 1}),
    "Softmax": Kind({"axis": 0, "fixbug0": 1}),
    "Split": Kind(),
    "Swish": Kind(),
    "TanH": Kind(),
    "UnaryOp": Kind({"op_type": 0}),
}


def encode_settings(kind: str, settings: Mapping[str, Setting]) -> Iterator[int]:
    """Return a layer's parameters in the form of ncnn's binary graphs, as 32-bit words."""
    numbers = KINDS[kind].numbers
    for name, value in sorted(settings.items(), key=lambda item: numbers[item[0]]):
        if isinstance(value, tuple):
            yield _ARRAY - numbers[name]
            yield len(value)
            yield from map(_word, value)
        else:
            assert not isinstance(value, str), f"ncnn's parameter {name} is a number"
            yield numbers[name]
            yield _word(value)
    yield _END


def _word(value: int | float) -> int:
    if isinstance(value, float):
        word: int = struct.unpack("<i", struct.pack("<f", value))[0]
        return word
    return int(value)


def encode_weights(kind: str, weights: Mapping[str, Array], precision: Precision) -> bytes:
    """Return a layer's weights as ncnn's loader reads them, each at a multiple of four bytes."""
    import numpy as np

    parts = []
    for stored in KINDS[kind].weights:
        if stored.name not in weights:
            continue
        if weights[stored.name].dtype == np.int8:
            steps = np.ascontiguousarray(weights[stored.name]).tobytes()
            parts += [_INT8_TAG, steps, bytes(-len(steps) % 4)]
            continue
        array = np.ascontiguousarray(weights[stored.name], np.float32)
        if not stored.tagged:
            parts.append(array.tobytes())
        elif precision == "fp16":
            halves = array.astype(np.float16).tobytes()
            parts += [_FP16_TAG, halves, bytes(-len(halves) % 4)]
        else:
            parts += [_NO_TAG, array.tobytes()]
    return b"".join(parts)
