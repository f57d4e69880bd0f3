"""Kernels for one layer each, in the vector instructions (MVE) of Cortex-M55."""

from edgekit.aot.kernels_mve import addition, convolution, depthwise

__all__ = ["addition", "convolution", "depthwise"]
