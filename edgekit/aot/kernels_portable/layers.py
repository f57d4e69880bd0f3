"""Convolutions and fully connected layers."""

from __future__ import annotations

import numpy as np

from edgekit.aot.kernel import Constant, Kernel
from edgekit.aot.kernels_portable import rescaling
from edgekit.aot.kernels_portable.text import (
    MAKER,
    Lines,
    block,
    extents,
    indented,
    loop,
    plus,
    with_source,
)
from edgekit.aot.operators import Conv2D, DepthwiseConv2D, FullyConnected, Window
from edgekit.aot.program import Step
from edgekit.base.arrays import Array

_HELD_WEIGHTS = 25
"""The most weights that are read into variables before a channel's pixels: a 5 by 5 window."""

FILL_ROW = """\
/* One row of a window: `count` pixels from column `x` on; what lies outside is `zero`. */
static inline void ek_fill_row(
    int8_t *restrict to,
    const int8_t *restrict row,
    int32_t x,
    int32_t count,
    int32_t width,
    int32_t channels,
    int32_t zero)
{
    const int32_t before = x < 0 ? (-x < count ? -x : count) : 0;
    const int32_t behind = x + count > width ? x + count - width : 0;
    const int32_t after = behind < count - before ? behind : count - before;
    const int32_t inside = count - before - after;
    memset(to, zero, (size_t)(before * channels));
    memcpy(to + before * channels, row + (x + before) * channels, (size_t)(inside * channels));
    memset(to + (before + inside) * channels, zero, (size_t)(after * channels));
}
"""


def _largest(weights_by_channel: Array, bias: Array, zero_point: int) -> int:
    """Return the largest sum for any input."""
    spread = max(127 - zero_point, zero_point + 128)
    sums = np.abs(weights_by_channel.astype("int64")).sum(axis=1) * spread
    folded = np.abs(weights_by_channel.astype("int64").sum(axis=1) * zero_point)
    return int((sums + folded + np.abs(bias.astype("int64"))).max(initial=0))


def convolution(step: Step, operator: Conv2D, at_once: int) -> Kernel:
    """Gather the window of one pixel, then compute every output channel as one dot product,
    `at_once` channels at a time."""
    source, result, window = operator.source, operator.result, operator.window
    channels = result.channels
    depth = window.kernel[0] * window.kernel[1] * source.channels
    flat = operator.weights.reshape(channels, depth)
    start = operator.bias.astype("int64") - operator.zero_point * flat.sum(axis=1, dtype="int64")
    largest = _largest(flat, operator.bias, operator.zero_point)
    rescale = rescaling.per_channel(operator.rescale, start, largest)
    copies = window.kernel != (1, 1) or any(window.padding)
    body = [
        *(["int8_t *window = (int8_t *)scratch;"] if copies else []),
        *loop(
            "y",
            result.height,
            loop(
                "x",
                result.width,
                [
                    *(_filled(operator) if copies else [_pixel(operator)]),
                    *_products(step, (channels, depth), rescale, at_once),
                ],
            ),
        ),
    ]
    comment = f"{window.kernel[0]}x{window.kernel[1]} convolution, {extents(source, result)}"
    return with_source(
        step,
        comment,
        body,
        Kernel(
            MAKER,
            "",
            constants=(Constant("weights", flat), Constant("rows", rescale.rows)),
            helpers=(*rescale.stored.helpers, *((FILL_ROW,) if copies else ())),
            scratch=_aligned(depth) if copies else 0,
        ),
    )


def _pixel(operator: Conv2D) -> str:
    source = operator.source
    down, right = operator.window.strides
    row = f"y * {down * source.width * source.channels}"
    return f"const int8_t *window = input + {row} + x * {right * source.channels};"


def _filled(operator: Conv2D) -> list[str]:
    """Return C that copies the window of the pixel at y, x into the scratch memory."""
    source, window = operator.source, operator.window
    rows, columns = window.kernel
    top, left = window.padding[:2]
    row_bytes = columns * source.channels
    at_row = f"y * {window.strides[0]} + i * {window.dilations[0]}{plus(-top)}"
    at_column = f"x * {window.strides[1]}{plus(-left)}"
    to = f"window + i * {row_bytes}"
    from_row = f"input + row * {source.width * source.channels}"
    if window.dilations[1] == 1 or columns == 1:
        copied = [
            f"ek_fill_row({to}, {from_row}, {at_column}, {columns}, "
            f"{source.width}, {source.channels}, {operator.zero_point});"
        ]
    else:
        place = f"{at_column} + j * {window.dilations[1]}"
        copied = loop(
            "j",
            columns,
            [
                f"ek_fill_row({to} + j * {source.channels}, {from_row}, {place}, 1, "
                f"{source.width}, {source.channels}, {operator.zero_point});"
            ],
        )
    if not _leaves_image(window, operator.source.height, operator.result.height):
        inner: Lines = [f"const int32_t row = {at_row};", *copied]
    else:
        inner = [
            f"const int32_t row = {at_row};",
            f"if (row < 0 || row >= {source.height}) {{",
            f"    memset({to}, {operator.zero_point}, {row_bytes});",
            "} else {",
            *indented(copied),
            "}",
        ]
    return loop("i", rows, inner)


def _leaves_image(window: Window, extent: int, results: int) -> bool:
    """Return whether some window has rows above or below the image."""
    top = window.padding[0]
    last = (results - 1) * window.strides[0] + (window.kernel[0] - 1) * window.dilations[0] - top
    return top > 0 or last >= extent


def _products(
    step: Step, shape: tuple[int, int], rescale: rescaling.PerChannel, at_once: int
) -> list[str]:
    """Return C for every output channel of a pixel, some at a time, which saves loads."""
    left, depth = shape
    body = [
        f"const int8_t *weights = {step.name}_weights;",
        f"const int32_t *row = {step.name}_rows;",
    ]
    for together in (4, 2, 1):
        if left >= together <= at_once:
            unrolled = 4 if at_once == 4 and depth % 4 == 0 else 1
            body += loop("group", left // together, _group(together, depth, unrolled, rescale))
            left %= together
    return body


def _group(together: int, depth: int, unrolled: int, rescale: rescaling.PerChannel) -> list[str]:
    """Return C for the next output channels of a pixel, which share its numbers."""
    sums = ["sum", "second", "third", "fourth"][:together]
    products = []
    for u in range(unrolled):
        at = f"k + {u}" if u else "k"
        products.append(f"value = window[{at}];")
        products += [
            f"{name} += value * weights[{at}{plus(n * depth)}];" for n, name in enumerate(sums)
        ]
    body = [f"int32_t {name} = row[{n * rescale.width}];" for n, name in enumerate(sums)]
    body += ["int32_t value;"]
    body += [f"for (int32_t k = 0; k < {depth}; k += {unrolled}) {{", *indented(products), "}"]
    for n, name in enumerate(sums):
        body += [f"sum = {name};"] if n else []
        body += [f"*output++ = {rescale.stored.text};", f"row += {rescale.width};"]
    return [*body, f"weights += {together * depth};"]


def fully_connected(step: Step, operator: FullyConnected, at_once: int) -> Kernel:
    units, depth = operator.weights.shape
    start = operator.bias.astype("int64") - operator.zero_point * operator.weights.sum(
        axis=1, dtype="int64"
    )
    largest = _largest(operator.weights, operator.bias, operator.zero_point)
    rescale = rescaling.per_channel(operator.rescale, start, largest)
    body = loop(
        "vector",
        operator.rows,
        [
            f"const int8_t *window = input + vector * {depth};",
            *_products(step, (units, depth), rescale, at_once),
        ],
    )
    comment = f"fully connected, {depth} to {units}"
    return with_source(
        step,
        comment,
        body,
        Kernel(
            MAKER,
            "",
            constants=(Constant("weights", operator.weights), Constant("rows", rescale.rows)),
            helpers=rescale.stored.helpers,
        ),
    )


def depthwise(step: Step, operator: DepthwiseConv2D) -> Kernel:
    """Compute channel by channel from a padded copy: the output may overwrite the input."""
    source, result, window = operator.source, operator.result, operator.window
    rows, columns = window.kernel
    taps = operator.weights.reshape(rows * columns, result.channels)
    start = operator.bias.astype("int64") - operator.zero_point * taps.sum(axis=0, dtype="int64")
    largest = _largest(taps.T, operator.bias, operator.zero_point)
    rescale = rescaling.per_channel(operator.rescale, start, largest, ("factor", "shift"))
    top, left = window.padding[:2]
    height = (result.height - 1) * window.strides[0] + (rows - 1) * window.dilations[0] + 1
    width = (result.width - 1) * window.strides[1] + (columns - 1) * window.dilations[1] + 1
    inside_rows = min(source.height, height - top)
    inside_columns = min(source.width, width - left)
    padded = (top, left, inside_rows, inside_columns) != (0, 0, height, width)
    plane = [
        *([f"memset(plane, {operator.zero_point}, {height * width});"] if padded else []),
        *loop(
            "y",
            inside_rows,
            loop(
                "x",
                inside_columns,
                [
                    f"plane[(y{plus(top)}) * {width} + x{plus(left)}] = "
                    f"input[(y * {source.width} + x) * {source.channels} + c];"
                ],
            ),
        ),
    ]
    each_row = ["const int32_t start = row[0];"]
    if rescale.width > 1:
        each_row = ["const int32_t start = row[0], factor = row[1], shift = row[2];"]
    places = [(i, j) for i in range(rows) for j in range(columns)]
    held = [f"const int32_t w{i}{j} = weights[{i * columns + j}];" for i, j in places]
    weight = [f"w{i}{j}" for i, j in places]
    if len(places) > _HELD_WEIGHTS:
        held, weight = [], [f"weights[{k}]" for k in range(len(places))]
    sums = [
        f"const int8_t *from = plane + y * {window.strides[0] * width} + x * {window.strides[1]};",
        "int32_t sum = start;",
        *(
            f"sum += from[{i * window.dilations[0] * width + j * window.dilations[1]}] * {name};"
            for (i, j), name in zip(places, weight, strict=True)
        ),
        f"*to = {rescale.stored.text};",
        f"to += {result.channels};",
    ]
    multiplied = [
        *each_row,
        *held,
        "int8_t *to = output++;",
        *loop("y", result.height, loop("x", result.width, sums)),
        f"weights += {rows * columns};",
        f"row += {rescale.width};",
    ]
    each = [*plane, *loop("m", operator.multiplier, multiplied)]
    body = [
        "int8_t *plane = (int8_t *)scratch;",
        f"const int8_t *weights = {step.name}_weights;",
        f"const int32_t *row = {step.name}_rows;",
        *block(f"for (int32_t c = 0; c < {source.channels}; c++)", each),
    ]
    shared = operator.multiplier == 1 and result.elements <= source.elements
    comment = f"{rows}x{columns} depthwise convolution, {extents(operator.source, operator.result)}"
    return with_source(
        step,
        comment,
        body,
        Kernel(
            MAKER,
            "",
            constants=(
                Constant("weights", np.ascontiguousarray(taps.T)),
                Constant("rows", rescale.rows),
            ),
            helpers=rescale.stored.helpers,
            scratch=_aligned(height * width),
            in_place=((0, 0),) if shared else (),
        ),
    )


def _aligned(size: int) -> int:
    return -(-size // 16) * 16
