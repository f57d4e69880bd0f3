"""One converter an operator, one file a family."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.frontends.onnx.node import Converter
from edgekit.frontends.onnx.operators.activation import ACTIVATION
from edgekit.frontends.onnx.operators.common import Converters
from edgekit.frontends.onnx.operators.convolution import CONVOLUTION
from edgekit.frontends.onnx.operators.elementwise import ELEMENTWISE
from edgekit.frontends.onnx.operators.indexing import INDEXING
from edgekit.frontends.onnx.operators.layout import LAYOUT
from edgekit.frontends.onnx.operators.linear import LINEAR
from edgekit.frontends.onnx.operators.microsoft import MICROSOFT
from edgekit.frontends.onnx.operators.normalization import NORMALIZATION
from edgekit.frontends.onnx.operators.pooling import POOLING
from edgekit.frontends.onnx.operators.quantization import QUANTIZATION
from edgekit.frontends.onnx.operators.recurrent import RECURRENT
from edgekit.frontends.onnx.operators.reduction import REDUCTION
from edgekit.frontends.onnx.operators.refused import REFUSED
from edgekit.frontends.onnx.operators.resize import RESIZE
from edgekit.frontends.onnx.operators.sequence import SEQUENCE
from edgekit.frontends.onnx.operators.signal import SIGNAL
from edgekit.frontends.onnx.operators.vision import VISION

FAMILIES: Mapping[str, tuple[Converters, ...]] = {
    "": (
        ACTIVATION,
        CONVOLUTION,
        ELEMENTWISE,
        INDEXING,
        LAYOUT,
        LINEAR,
        NORMALIZATION,
        POOLING,
        QUANTIZATION,
        RECURRENT,
        RESIZE,
        SEQUENCE,
        SIGNAL,
        VISION,
        REDUCTION,
    ),
    "com.microsoft": (MICROSOFT,),
}

CONVERTERS: Mapping[tuple[str, str], Converter] = {
    (domain, operator): converter
    for domain, families in FAMILIES.items()
    for family in families
    for operator, converter in family.items()
}

__all__ = ["CONVERTERS", "REFUSED"]
