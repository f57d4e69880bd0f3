"""Who offers kernels with vector instructions, and for what."""

from __future__ import annotations

from edgekit.aot.constant_channels import without_constant_channels
from edgekit.aot.kernel import Declined, Kernel
from edgekit.aot.kernels_mve import addition, convolution, depthwise
from edgekit.aot.operators import Add, Conv2D, DepthwiseConv2D, FullyConnected
from edgekit.aot.program import Step
from edgekit.cpu import Cpu


class MveGenerator:
    """Kernels for exactly one layer, sixteen multiplications an instruction."""

    @property
    def name(self) -> str:
        return "edgekit mve"

    def offer(self, step: Step, cpu: Cpu) -> Kernel | Declined:
        if "mve-integer" not in cpu.features:
            return Declined(f"{cpu.name} has no vector instructions")
        match step.operator:
            case Conv2D():
                return convolution.offer(step, without_constant_channels(step.operator))
            case DepthwiseConv2D():
                return depthwise.offer(step, without_constant_channels(step.operator))
            case FullyConnected():
                return convolution.offer_dense(step, without_constant_channels(step.operator))
            case Add():
                return addition.offer(step, step.operator)
        return Declined("there is no kernel of this kind")
