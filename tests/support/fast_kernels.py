"""Kernels for one kind of CPU, on that CPU in QEMU, against the portable ones on this machine.

Layers are random; a whole batch becomes one program, which compares by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.aot.c_text import C_TYPES, values_text
from edgekit.aot.kernel import Declined, Generator, Kernel
from edgekit.aot.operators import (
    Add,
    AveragePool,
    Conv2D,
    DepthwiseConv2D,
    FixedPoint,
    FullyConnected,
    Image,
    MaxPool,
    Operand,
    Operator,
    Quantize,
    Rescale,
    Window,
)
from edgekit.aot.program import Step
from edgekit.aot.write_source import needed_helpers
from edgekit.profiles.cpu import Cpu
from support.integer_kernels import compiled, offered, run_step

CPUS = {
    "m4": Cpu("Cortex-M4", "cortex-m", ("dsp", "fpu-single"), 1),
    "m33": Cpu("Cortex-M33", "cortex-m", ("dsp", "fpu-single"), 1),
    "m55": Cpu("Cortex-M55", "cortex-m", ("dsp", "fpu-single", "mve-integer", "mve-float"), 1),
}
_GUARD = 64


@dataclass(frozen=True, eq=False)
class Case:
    step: Step
    kernel: Kernel
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray


def cases(
    layers: Sequence[Operator],
    generator: Generator,
    cpu: Cpu,
    seed: int,
    folder: Path,
    *,
    any_way: bool = False,
) -> Iterator[Case]:
    """Draw cases of the layers that the generator takes, each its own way or any of its ways."""
    random = np.random.default_rng(seed)
    steps = [
        Step(f"step{number}", operator, (0,), (1,), ("layer",))
        for number, operator in enumerate(layers)
    ]
    taken = []
    for step in steps:
        ways = ("", *generator.ways(step, cpu)) if any_way else ("",)
        kernel = generator.offer(step, cpu, ways[random.integers(len(ways))])
        if not isinstance(kernel, Declined):
            taken.append((step, kernel))
    portable = compiled(
        [offered(step.operator, number) for number, (step, _) in enumerate(taken)], folder
    )
    for number, (step, kernel) in enumerate(taken):
        inputs, shape = _inputs(step.operator, random)
        yield Case(step, kernel, inputs, run_step(portable, number, inputs, shape, "int8"))


def program(batch: Sequence[Case]) -> str:
    """C that runs each case and returns how many were wrong."""
    kernels = [case.kernel for case in batch]
    lines = ["#include <stdint.h>", "#include <stdio.h>", "#include <string.h>"]
    headers = dict.fromkeys(header for kernel in kernels for header in kernel.headers)
    lines += [f"#include {name if name[0] == chr(34) else f'<{name}>'}" for name in headers]
    lines += ["#ifdef __cplusplus", "#define restrict __restrict", "#endif"]
    lines += needed_helpers(kernels)
    most = max(
        [case.expected.nbytes for case in batch]
        + [array.nbytes for case in batch for array in case.inputs]
    )
    scratch = max(kernel.scratch for kernel in kernels)
    guarded = "__attribute__((aligned(16)))"
    lines += [f"static uint8_t result[{most + _GUARD}] {guarded};"]
    lines += [f"static uint8_t scratch[{scratch + _GUARD}] {guarded};", *_COMPARE]
    body: list[str] = []
    for case in batch:
        name = case.step.name
        for constant in case.kernel.constants:
            lines += _array(f"{name}_{constant.name}", constant.array, constant.alignment)
        for number, array in enumerate(case.inputs):
            lines += _array(f"{name}_in{number}", array, 4)
        lines += _array(f"{name}_expected", case.expected, 4)
        lines.append(case.kernel.source)
        body += _runs(case)
    return "\n".join([*lines, "int main(void)", "{", "    int wrong = 0;", *body]) + (
        "\n    return wrong;\n}\n"
    )


_COMPARE = [
    "static int compare(const char *name, const int8_t *expected, uint32_t size, uint32_t own)",
    "{",
    "    for (uint32_t i = 0; i < size; i++) {",
    "        if ((int8_t)result[i] != expected[i]) {",
    '            printf("%s [%u]: %d, not %d\\n", name, (unsigned)i, (int8_t)result[i],',
    "                expected[i]);",
    "            return 1;",
    "        }",
    "    }",
    f"    for (uint32_t i = 0; i < {_GUARD}; i++) {{",
    "        if (scratch[own + i] != 85) {",
    '            printf("%s wrote behind its scratch\\n", name);',
    "            return 1;",
    "        }",
    "    }",
    "    return 0;",
    "}",
]


def _runs(case: Case) -> list[str]:
    name, kernel = case.step.name, case.kernel
    size = case.expected.nbytes
    given = [f"{name}_in{number}" for number in range(len(case.inputs))]
    lines = []
    for place in (None, *(source for source, _ in kernel.in_place)):
        arguments = list(given)
        lines += [
            "    memset(result, 85, sizeof result);",
            "    memset(scratch, 85, sizeof scratch);",
        ]
        if place is not None:
            kind = C_TYPES[str(case.inputs[place].dtype)]
            lines += [f"    memcpy(result, {given[place]}, sizeof {given[place]});"]
            arguments[place] = f"({kind} *)result"
        arguments.append("(int8_t *)result")
        if kernel.scratch:
            arguments.append("scratch")
        lines += [f"    {name}({', '.join(arguments)});"]
        where = name if place is None else f"{name} in place"
        lines += [f'    wrong += compare("{where}", {name}_expected, {size}, {kernel.scratch});']
    return lines


def _array(name: str, array: np.ndarray, alignment: int) -> list[str]:
    kind = C_TYPES[str(array.dtype)]
    head = f"static const {kind} {name}[{array.size}] __attribute__((aligned({alignment}))) = {{"
    return [head, *values_text(array), "};"]


def _inputs(
    operator: Operator, random: np.random.Generator
) -> tuple[tuple[np.ndarray, ...], tuple[int, ...]]:
    def stored(shape: tuple[int, ...]) -> np.ndarray:
        return random.integers(-128, 128, shape).astype("int8")

    match operator:
        case Quantize():
            scale = np.float32(operator.scale)
            values = (random.normal(size=operator.elements) * 60 * scale).astype("float32")
            edges = np.array([0.5, -0.5, 1.5, -2.5, 1e6, -1e6, 0.49999997, -0.0], "float32") * scale
            values[: len(edges)] = edges[: operator.elements]
            return (values,), (operator.elements,)
        case Add():
            return (stored(operator.shape), stored(operator.shape)), operator.shape
        case FullyConnected():
            outputs, inputs = operator.weights.shape
            return (stored((operator.rows, inputs)),), (operator.rows, outputs)
        case Conv2D() | DepthwiseConv2D() | AveragePool() | MaxPool():
            source, result = operator.source, operator.result
            shape = (result.height, result.width, result.channels)
            return (stored((source.height, source.width, source.channels)),), shape
    raise AssertionError(operator)


def layers(seed: int, count: int) -> list[Operator]:
    """Random layers of every kind that fast kernels know."""
    random = np.random.default_rng(seed)
    makers = [_convolution, _convolution, _pointwise, _depthwise, _depthwise, _dense, _add, _pool]
    made = [makers[number % len(makers)](random) for number in range(count)]
    return [*made, Quantize(int(random.integers(8, 50)), 0.37, int(random.integers(-128, 128)))]


def _rescale(
    random: np.random.Generator, channels: int, lowest: int, highest: int, once: bool = False
) -> Rescale:
    factors = tuple(
        FixedPoint(
            int(random.integers(1 << 30, (1 << 31) - 1)), -int(random.integers(lowest, highest))
        )
        for _ in range(channels)
    )
    zero = int(random.integers(-128, 100))
    low, high = [(-128, 127), (zero, 127), (zero, min(127, zero + 90)), (-100, 100)][
        random.integers(4)
    ]
    if channels > 2 and random.integers(3) == 0:
        # What trained networks have: channels that say nothing.
        factors = (FixedPoint(0, 0), FixedPoint((1 << 30) + 12345, -31), *factors[2:])
    return Rescale(factors, zero, low, high, once)


def _window(
    random: np.random.Generator, most: int
) -> tuple[Window, tuple[int, int], tuple[int, int]]:
    """A window, and sizes of an image under it and of the result."""
    kernel = tuple(int(random.integers(1, most)) for _ in range(2))
    strides = tuple(int(random.integers(1, 4)) for _ in range(2))
    size = tuple(int(random.integers(extent, 13)) for extent in kernel)
    before = tuple(int(random.integers(0, extent)) for extent in kernel)
    after = tuple(int(random.integers(0, extent)) for extent in kernel)
    result = tuple(
        (size[axis] + before[axis] + after[axis] - kernel[axis]) // strides[axis] + 1
        for axis in (0, 1)
    )
    window = Window((kernel[0], kernel[1]), (strides[0], strides[1]), (1, 1), (*before, *after))
    return window, (size[0], size[1]), (result[0], result[1])


def _weights(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.integers(-127, 128, shape).astype("int8")


def _bias(random: np.random.Generator, channels: int) -> np.ndarray:
    return random.integers(-4000, 4000, channels).astype("int32")


def _convolution(random: np.random.Generator) -> Operator:
    window, size, result = _window(random, 6)
    channels = int(random.choice([1, 2, 3, 4, 5, 8, 16, 17, 24]))
    outputs = int(random.choice([2, 3, 4, 5, 7, 8, 12, 16]))
    return Conv2D(
        source=Image(height=size[0], width=size[1], channels=channels),
        result=Image(height=result[0], width=result[1], channels=outputs),
        window=window,
        weights=_weights(random, outputs, *window.kernel, channels),
        bias=_bias(random, outputs),
        zero_point=int(random.integers(-128, 128)),
        rescale=_rescale(random, int(random.choice([1, outputs])), 8, 12),
    )


def _pointwise(random: np.random.Generator) -> Operator:
    height, width = int(random.integers(1, 7)), int(random.integers(1, 7))
    channels, outputs = int(random.integers(1, 40)), int(random.integers(2, 20))
    return Conv2D(
        source=Image(height=height, width=width, channels=channels),
        result=Image(height=height, width=width, channels=outputs),
        window=Window((1, 1)),
        weights=_weights(random, outputs, 1, 1, channels),
        bias=_bias(random, outputs),
        zero_point=int(random.integers(-128, 128)),
        rescale=_rescale(random, outputs, 7, 10),
    )


def _depthwise(random: np.random.Generator) -> Operator:
    window, size, result = _window(random, 6)
    channels = int(random.choice([1, 3, 4, 8, 8, 16, 24]))
    outputs = channels * int(random.choice([1, 1, 1, 2]))
    return DepthwiseConv2D(
        source=Image(height=size[0], width=size[1], channels=channels),
        result=Image(height=result[0], width=result[1], channels=outputs),
        window=window,
        weights=_weights(random, *window.kernel, outputs),
        bias=_bias(random, outputs),
        zero_point=int(random.integers(-128, 128)),
        rescale=_rescale(random, outputs, 6, 9),
    )


def _dense(random: np.random.Generator) -> Operator:
    inputs, outputs = int(random.integers(1, 70)), int(random.integers(2, 30))
    once = bool(random.integers(2))
    return FullyConnected(
        rows=int(random.choice([1, 1, 3])),
        weights=_weights(random, outputs, inputs),
        bias=_bias(random, outputs),
        zero_point=int(random.integers(-128, 128)),
        rescale=_rescale(random, 1 if once else outputs, 8, 11, once),
    )


def _add(random: np.random.Generator) -> Operator:
    shape = (int(random.integers(1, 200)),)
    sides = [
        Operand(shape, int(random.integers(-128, 128)), factor)
        for factor in (
            FixedPoint(1 << 30, 0),
            FixedPoint(int(random.integers(1 << 30, (1 << 31) - 1)), -int(random.integers(0, 5))),
        )
    ]
    left, right = sides if random.integers(2) else sides[::-1]
    return Add(left, right, 20, bool(random.integers(2)), shape, _rescale(random, 1, 17, 20))


def _pool(random: np.random.Generator) -> Operator:
    window, size, result = _window(random, 6)
    channels = int(random.choice([3, 4, 8, 20]))
    kind = AveragePool if random.integers(2) else MaxPool
    return kind(
        source=Image(height=size[0], width=size[1], channels=channels),
        result=Image(height=result[0], width=result[1], channels=channels),
        window=window,
        low=int(random.integers(-128, -90)),
        high=int(random.integers(90, 128)),
    )
