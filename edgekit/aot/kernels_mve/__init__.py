"""Kernels for one layer each, in the vector instructions (MVE) of Cortex-M55."""

from edgekit.aot.kernels_mve.generator import MveGenerator

__all__ = ["MveGenerator"]
