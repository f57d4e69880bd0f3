"""Kernels for one layer each, in the SIMD instructions of Cortex-M4, M7 and M33."""

from edgekit.aot.kernels_dsp import addition, convolution, dense, depthwise, floats, pooling

__all__ = ["addition", "convolution", "dense", "depthwise", "floats", "pooling"]
