"""The generator of kernels with vector instructions, and the operators it supports."""

from __future__ import annotations

from edgekit.aot.constant_channels import without_constant_channels
from edgekit.aot.kernel import NO_SUCH_WAY, Declined, Kernel
from edgekit.aot.kernels_mve import addition, convolution, depthwise
from edgekit.aot.operators import Add, Conv2D, DepthwiseConv2D, FullyConnected
from edgekit.aot.program import Step
from edgekit.profiles.cpu import Cpu


class MveGenerator:
    """Kernels for exactly one layer, with sixteen multiplications per instruction."""

    @property
    def name(self) -> str:
        return "edgekit mve"

    def offer(self, step: Step, cpu: Cpu, way: str = "") -> Kernel | Declined:
        if "mve-integer" not in cpu.features:
            return Declined(f"{cpu.name} has no vector instructions")
        if way and way not in self.ways(step, cpu):
            return NO_SUCH_WAY
        match step.operator:
            case Conv2D():
                return convolution.offer(step, without_constant_channels(step.operator), way)
            case DepthwiseConv2D():
                return depthwise.offer(step, without_constant_channels(step.operator))
            case FullyConnected():
                return convolution.offer_dense(step, without_constant_channels(step.operator), way)
            case Add():
                return addition.offer(step, step.operator)
        return Declined("there is no kernel of this kind")

    def ways(self, step: Step, cpu: Cpu) -> tuple[str, ...]:
        del cpu
        match step.operator:
            case Conv2D():
                return convolution.ways(step.operator.window.kernel, step.operator.source.channels)
            case FullyConnected():
                return convolution.ways((1, 1), step.operator.weights.shape[1])
        return ()
