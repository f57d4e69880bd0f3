"""The generator of kernels with DSP instructions, and the operators it supports."""

from __future__ import annotations

from edgekit.aot.constant_channels import without_constant_channels
from edgekit.aot.kernel import NO_SUCH_WAY, Declined, Kernel
from edgekit.aot.kernels_dsp import addition, convolution, dense, depthwise, floats, pooling
from edgekit.aot.operators import (
    Add,
    AveragePool,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    Quantize,
)
from edgekit.aot.program import Step
from edgekit.profiles.cpu import Cpu


class DspGenerator:
    """Kernels for exactly one layer: weights in the order they are read, no copy of the image."""

    @property
    def name(self) -> str:
        return "edgekit dsp"

    def offer(self, step: Step, cpu: Cpu, way: str = "") -> Kernel | Declined:
        if "dsp" not in cpu.features:
            return Declined(f"{cpu.name} has no DSP instructions")
        if way and way not in self.ways(step, cpu):
            return NO_SUCH_WAY
        match step.operator:
            case Conv2D():
                return convolution.offer(step, without_constant_channels(step.operator), way)
            case DepthwiseConv2D():
                return depthwise.offer(step, without_constant_channels(step.operator), way)
            case FullyConnected():
                return dense.offer(step, without_constant_channels(step.operator), way)
            case Add():
                return addition.offer(step, step.operator)
            case AveragePool():
                return pooling.offer(step, step.operator)
            case Quantize():
                return floats.offer(step, step.operator, cpu.features)
        return Declined("there is no kernel of this kind")

    def ways(self, step: Step, cpu: Cpu) -> tuple[str, ...]:
        del cpu
        match step.operator:
            case Conv2D():
                return convolution.ways(step.operator)
            case DepthwiseConv2D():
                return depthwise.ways(step.operator)
            case FullyConnected():
                return dense.ways(step.operator)
        return ()
