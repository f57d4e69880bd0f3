"""The generators of kernels, in the order in which they are asked for offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgekit.aot import kernels_dsp as dsp
from edgekit.aot import kernels_mve as mve
from edgekit.aot import kernels_portable as portable
from edgekit.aot.constant_channels import without_constant_channels
from edgekit.aot.kernel import NO_SUCH_WAY, Declined, Generator, Kernel
from edgekit.aot.loops.generator import LoopGenerator
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
    MaxPool,
    Mean,
    Multiply,
    Pad,
    Quantize,
    ResizeNearest,
    Softmax,
)
from edgekit.aot.program import Step
from edgekit.profiles.architecture import architectures
from edgekit.profiles.cpu import Cpu

_SMALL = {name for name, known in architectures().items() if not known.has_os}
Offer = Callable[[Step, Any, Cpu, str], Kernel | Declined]
"""A function that makes the kernel of a step with an operator, for a CPU, in one of its ways."""


@dataclass(frozen=True)
class TableGenerator:
    """A generator that has one function for each operator."""

    name: str
    offers: Mapping[type, Offer]
    otherwise: str = "there is no kernel of this kind"
    feature: str = ""
    """The feature that the CPU must have."""
    instructions: str = ""
    """The name of the feature's instructions."""
    other_ways: Mapping[type, Callable[[Any], tuple[str, ...]]] | None = None

    def offer(self, step: Step, cpu: Cpu, way: str = "") -> Kernel | Declined:
        if self.feature and self.feature not in cpu.features:
            return Declined(f"{cpu.name} has no {self.instructions} instructions")
        if way and way not in self.ways(step, cpu):
            return NO_SUCH_WAY
        offer = self.offers.get(type(step.operator))
        return Declined(self.otherwise) if offer is None else offer(step, step.operator, cpu, way)

    def ways(self, step: Step, cpu: Cpu) -> tuple[str, ...]:
        del cpu
        ways = (self.other_ways or {}).get(type(step.operator))
        return () if ways is None else ways(step.operator)


def _plain(make: Callable[[Step, Any], Kernel | Declined]) -> Offer:
    def offer(step: Step, operator: Any, cpu: Cpu, way: str) -> Kernel | Declined:
        del way
        made = make(step, operator)
        if isinstance(made, Kernel) and "mve-integer" in cpu.features:
            return replace(made, instructions=None)  # not comparable with those for vectors
        return made

    return offer


def _in_groups(make: Callable[[Step, Any, int], Kernel]) -> Offer:
    """Compute as many channels at once as a small core has registers for. Compilers for other CPUs
    make vectors of two."""

    def offer(step: Step, operator: Any, cpu: Cpu, way: str) -> Kernel | Declined:
        few = cpu.arch not in _SMALL or {"armv6-m", "mve-integer"} & {*cpu.features}
        at_once = 2 if few else 4
        return _plain(lambda step, operator: make(step, operator, at_once))(
            step, operator, cpu, way
        )

    return offer


def _one_way(make: Callable[[Step, Any], Kernel | Declined]) -> Offer:
    return lambda step, operator, cpu, way: make(step, operator)


def _layer(make: Callable[[Step, Any, str], Kernel | Declined]) -> Offer:
    return lambda step, operator, cpu, way: make(step, without_constant_channels(operator), way)


PORTABLE = TableGenerator(
    "edgekit",
    {
        Conv2D: _in_groups(portable.layers.convolution),
        DepthwiseConv2D: _plain(portable.layers.depthwise),
        FullyConnected: _in_groups(portable.layers.fully_connected),
        Add: _plain(portable.elementwise.pair),
        Multiply: _plain(portable.elementwise.pair),
        Lookup: _plain(portable.elementwise.lookup),
        Quantize: _plain(portable.elementwise.quantize),
        Dequantize: _plain(portable.elementwise.dequantize),
        AveragePool: _plain(portable.pooling.average),
        MaxPool: _plain(portable.pooling.maximum),
        Mean: _plain(portable.pooling.mean),
        Softmax: _plain(portable.softmax.softmax),
        Pad: _plain(portable.moving.pad),
        Concatenate: _plain(portable.moving.concatenate),
        ResizeNearest: _plain(portable.moving.resize),
        CheckIndices: _plain(portable.indices.check),
    },
    otherwise="it is a loop nest of TVM's",
)
"""Plain C99 with LiteRT's exact results; the reference for all other generators."""

DSP = TableGenerator(
    "edgekit dsp",
    {
        Conv2D: _layer(dsp.convolution.offer),
        DepthwiseConv2D: _layer(dsp.depthwise.offer),
        FullyConnected: _layer(dsp.dense.offer),
        Add: _one_way(dsp.addition.offer),
        AveragePool: _one_way(dsp.pooling.offer),
        Quantize: lambda step, operator, cpu, way: dsp.floats.offer(step, operator, cpu.features),
    },
    feature="dsp",
    instructions="DSP",
    other_ways={
        Conv2D: dsp.convolution.ways,
        DepthwiseConv2D: dsp.depthwise.ways,
        FullyConnected: dsp.dense.ways,
    },
)
"""Kernels for exactly one layer: weights in the order they are read, no copy of the image."""

MVE = TableGenerator(
    "edgekit mve",
    {
        Conv2D: _layer(mve.convolution.offer),
        DepthwiseConv2D: _layer(lambda step, layer, way: mve.depthwise.offer(step, layer)),
        FullyConnected: _layer(mve.convolution.offer_dense),
        Add: _one_way(mve.addition.offer),
    },
    feature="mve-integer",
    instructions="vector",
    other_ways={
        Conv2D: lambda layer: mve.convolution.ways(layer.window.kernel, layer.source.channels),
        FullyConnected: lambda layer: mve.convolution.ways((1, 1), layer.weights.shape[1]),
    },
)
"""Kernels for exactly one layer, with sixteen multiplications per instruction."""


def generators(libraries: Sequence[Generator] = ()) -> tuple[Generator, ...]:
    """Return edgekit's own generators, and those of third-party `libraries`."""
    return (MVE, DSP, *libraries, *portable_generators())


def portable_generators() -> tuple[Generator, ...]:
    """Return the generators whose C every machine runs."""
    return (PORTABLE, LoopGenerator())


def is_portable(kernel: Kernel) -> bool:
    names = {generator.name for generator in portable_generators()}
    return names.issuperset(kernel.maker.split(", "))
