"""The converters, one per operator, in one file per family."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.models.onnx.node import Converter
from edgekit.models.onnx.operators.activation import ACTIVATION
from edgekit.models.onnx.operators.attention import ATTENTION
from edgekit.models.onnx.operators.blockwise import BLOCKWISE
from edgekit.models.onnx.operators.common import Converters
from edgekit.models.onnx.operators.convolution import CONVOLUTION
from edgekit.models.onnx.operators.edgekit import EDGEKIT
from edgekit.models.onnx.operators.elementwise import ELEMENTWISE
from edgekit.models.onnx.operators.indexing import INDEXING
from edgekit.models.onnx.operators.integer import INTEGER, MICROSOFT_INTEGER
from edgekit.models.onnx.operators.layout import LAYOUT
from edgekit.models.onnx.operators.linear import LINEAR
from edgekit.models.onnx.operators.microsoft import MICROSOFT, SIMPLIFIED
from edgekit.models.onnx.operators.normalization import NORMALIZATION
from edgekit.models.onnx.operators.pooling import POOLING
from edgekit.models.onnx.operators.qlinear import QLINEAR
from edgekit.models.onnx.operators.quantization import QUANTIZATION
from edgekit.models.onnx.operators.recurrent import MICROSOFT_RECURRENT, RECURRENT
from edgekit.models.onnx.operators.reduction import REDUCTION
from edgekit.models.onnx.operators.refused import REFUSED
from edgekit.models.onnx.operators.resize import RESIZE
from edgekit.models.onnx.operators.sequence import SEQUENCE
from edgekit.models.onnx.operators.signal import SIGNAL
from edgekit.models.onnx.operators.small import SMALL
from edgekit.models.onnx.operators.vision import VISION

FAMILIES: Mapping[str, tuple[Converters, ...]] = {
    "": (
        ACTIVATION,
        CONVOLUTION,
        ELEMENTWISE,
        INDEXING,
        INTEGER,
        LAYOUT,
        LINEAR,
        NORMALIZATION,
        POOLING,
        QUANTIZATION,
        RECURRENT,
        RESIZE,
        SEQUENCE,
        SIGNAL,
        SIMPLIFIED,
        VISION,
        REDUCTION,
    ),
    "com.microsoft": (
        ATTENTION,
        BLOCKWISE,
        MICROSOFT,
        MICROSOFT_INTEGER,
        MICROSOFT_RECURRENT,
        QLINEAR,
    ),
    "edgekit": (EDGEKIT, SMALL),
}

CONVERTERS: Mapping[tuple[str, str], Converter] = {
    (domain, operator): converter
    for domain, families in FAMILIES.items()
    for family in families
    for operator, converter in family.items()
}

__all__ = ["CONVERTERS", "REFUSED"]
