"""Portable kernels in plain C99, for every integer operator on every CPU."""

from edgekit.aot.kernels_portable import elementwise, indices, layers, moving, pooling, softmax

__all__ = ["elementwise", "indices", "layers", "moving", "pooling", "softmax"]
