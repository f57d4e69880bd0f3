"""CMSIS-NN: Arm's library of kernels for Cortex-M, used where it costs the fewest instructions."""

from edgekit.aot.cmsis_nn.generator import CmsisNnGenerator

__all__ = ["CmsisNnGenerator"]
