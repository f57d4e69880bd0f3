"""The generator of portable kernels, for every integer operator on every CPU."""

from __future__ import annotations

from dataclasses import replace

from edgekit.aot.kernel import NO_SUCH_WAY, Declined, Kernel
from edgekit.aot.kernels_portable import elementwise, indices, layers, moving, pooling
from edgekit.aot.kernels_portable.softmax import softmax
from edgekit.aot.operators import (
    Add,
    AveragePool,
    CheckIndices,
    Concatenate,
    Conv2D,
    DepthwiseConv2D,
    Dequantize,
    FullyConnected,
    Lookup,
    LoopNest,
    MaxPool,
    Mean,
    Multiply,
    Pad,
    Quantize,
    ResizeNearest,
    Softmax,
)
from edgekit.aot.program import Step
from edgekit.profiles.cpu import Cpu


class PortableGenerator:
    """Plain C99 with LiteRT's exact results; the reference for all other generators."""

    @property
    def name(self) -> str:
        return "edgekit"

    def offer(self, step: Step, cpu: Cpu, way: str = "") -> Kernel | Declined:
        if way:
            return NO_SUCH_WAY
        made = kernel(step)
        if isinstance(made, Kernel) and "mve-integer" in cpu.features:
            return replace(made, instructions=None)  # not comparable with those for vectors
        return made

    def ways(self, step: Step, cpu: Cpu) -> tuple[str, ...]:
        del step, cpu
        return ()


def kernel(step: Step) -> Kernel | Declined:
    match step.operator:
        case Conv2D() as operator:
            return layers.convolution(step, operator)
        case DepthwiseConv2D() as operator:
            return layers.depthwise(step, operator)
        case FullyConnected() as operator:
            return layers.fully_connected(step, operator)
        case Add() | Multiply() as operator:
            return elementwise.pair(step, operator)
        case Lookup() as operator:
            return elementwise.lookup(step, operator)
        case Quantize() as operator:
            return elementwise.quantize(step, operator)
        case Dequantize() as operator:
            return elementwise.dequantize(step, operator)
        case AveragePool() as operator:
            return pooling.average(step, operator)
        case MaxPool() as operator:
            return pooling.maximum(step, operator)
        case Mean() as operator:
            return pooling.mean(step, operator)
        case Softmax() as operator:
            return softmax(step, operator)
        case Pad() as operator:
            return moving.pad(step, operator)
        case Concatenate() as operator:
            return moving.concatenate(step, operator)
        case ResizeNearest() as operator:
            return moving.resize(step, operator)
        case CheckIndices() as operator:
            return indices.check(step, operator)
        case LoopNest():
            return Declined("it is a loop nest of TVM's")
