"""Padding, joining and resizing: bytes from one place to another."""

from __future__ import annotations

import math

import numpy as np

from edgekit.aot.kernel import Constant, Kernel
from edgekit.aot.kernels_portable.text import INT8, MAKER, loop, with_source
from edgekit.aot.operators import Concatenate, Pad, ResizeNearest
from edgekit.aot.program import Step


def pad(step: Step, operator: Pad) -> Kernel:
    """Fill the output, then copy the input in the longest possible runs."""
    shape = operator.shape
    result = [
        extent + before + after
        for extent, before, after in zip(shape, operator.before, operator.after, strict=True)
    ]
    rank = len(shape)
    inner = rank  # From this axis on, no axis is padded.
    while inner > 0 and not (operator.before[inner - 1] or operator.after[inner - 1]):
        inner -= 1
    split = max(inner - 1, 0)
    run = math.prod(shape[split:])
    start = sum(
        before * math.prod(result[axis + 1 :]) for axis, before in enumerate(operator.before)
    )
    to = [str(start)] if start else []
    source = []
    for axis in range(split):
        to.append(f"i{axis} * {math.prod(result[axis + 1 :])}")
        source.append(f"i{axis} * {math.prod(shape[axis + 1 :])}")
    lines = [
        f"memcpy(output + {' + '.join(to) or '0'}, input + {' + '.join(source) or '0'}, {run});"
    ]
    for axis in reversed(range(split)):
        lines = loop(f"i{axis}", shape[axis], lines)
    body = [f"memset(output, {operator.value}, {math.prod(result)});", *lines]
    comment = f"padding with {operator.value}, {_times(shape)} to {_times(result)}"
    return with_source(step, comment, body, Kernel(MAKER, ""))


def concatenate(step: Step, operator: Concatenate) -> Kernel:
    names = [f"part{place}" for place in range(len(operator.shapes))]
    runs = [math.prod(shape[operator.axis :]) for shape in operator.shapes]
    rows = math.prod(operator.shapes[0][: operator.axis])
    whole = sum(runs)
    lines = []
    start = 0
    for name, run in zip(names, runs, strict=True):
        to = f"output + i * {whole} + {start}" if rows > 1 else f"output + {start}"
        source = f"{name} + i * {run}" if rows > 1 else name
        lines.append(f"memcpy({to}, {source}, {run});")
        start += run
    comment = f"{len(names)} parts one behind the other along axis {operator.axis}"
    inputs = [(INT8, name) for name in names]
    return with_source(step, comment, loop("i", rows, lines), Kernel(MAKER, ""), inputs=inputs)


def resize(step: Step, operator: ResizeNearest) -> Kernel:
    source, result = operator.source, operator.result
    row = f"{step.name}_rows[y] * {source.width}"
    place = f"({row} + {step.name}_columns[x]) * {source.channels}"
    body = loop(
        "y",
        result.height,
        loop(
            "x",
            result.width,
            [
                f"memcpy(output, input + {place}, {source.channels});",
                f"output += {source.channels};",
            ],
        ),
    )
    comment = f"nearest neighbour, {source.height}x{source.width} to {result.height}x{result.width}"
    return with_source(
        step,
        comment,
        body,
        Kernel(
            MAKER,
            "",
            constants=(
                Constant("rows", np.array(operator.rows, "uint16"), alignment=2),
                Constant("columns", np.array(operator.columns, "uint16"), alignment=2),
            ),
        ),
    )


def _times(shape: tuple[int, ...] | list[int]) -> str:
    return "x".join(str(extent) for extent in shape)
