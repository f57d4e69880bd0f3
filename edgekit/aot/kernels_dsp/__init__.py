"""Kernels for one layer each, in the SIMD instructions of Cortex-M4, M7 and M33."""

from edgekit.aot.kernels_dsp.generator import DspGenerator

__all__ = ["DspGenerator"]
