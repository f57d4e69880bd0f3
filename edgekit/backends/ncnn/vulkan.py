"""Which layers ncnn runs on a GPU through Vulkan, as far as the graph decides it."""

from __future__ import annotations

from edgekit.backends.base import Options
from edgekit.backends.ncnn.net import Net

ON_GPU = frozenset(
    (
        *("BinaryOp", "CELU", "Clip", "Concat", "Convolution", "Convolution1D"),
        *("ConvolutionDepthWise", "Crop", "Deconvolution", "DeconvolutionDepthWise", "ELU"),
        *("Erf", "GELU", "GroupNorm", "HardSigmoid", "HardSwish", "InnerProduct"),
        *("InstanceNorm", "Interp", "LayerNorm", "MemoryData", "Mish", "PReLU", "Padding"),
        *("Permute", "Pooling", "RMSNorm", "ReLU", "Reduction", "Reshape", "SELU", "Scale"),
        *("Sigmoid", "Slice", "Softmax", "Split", "Swish", "TanH", "UnaryOp"),
    )
)
"""The kinds of layers that ncnn's source has shaders for. A net's tensors go to the CPU and back
around any other layer."""


def place_in_words(net: Net, options: Options) -> str:
    """Describe where a region computes: `Vulkan, 12 of 14 layers, float32`."""
    layers = [layer for layer in net.layers if layer.kind not in ("Input", "Split")]
    able = sum(layer.kind in ON_GPU for layer in layers)
    share = "all layers" if able == len(layers) else f"{able} of {len(layers)} layers"
    stored = "float16" if options["fp16_storage"] else "float32"
    if options["bf16_storage"] and not options["fp16_storage"]:
        stored = "bfloat16"
    computed = "float16" if options["fp16_arithmetic"] else "float32"
    return f"Vulkan, {share}, {stored}" + ("" if stored == computed else f", sums in {computed}")
