"""Averages and maxima of windows, and of whole images."""

from __future__ import annotations

from edgekit.aot.kernel import Kernel
from edgekit.aot.kernels_portable import rescaling
from edgekit.aot.kernels_portable.text import MAKER, block, extents, loop, plus, with_source
from edgekit.aot.operators import AveragePool, Image, MaxPool, Mean, Window
from edgekit.aot.program import Step

AVERAGE = """\
/* sum / count, ties away from zero. */
static inline int32_t ek_average(int32_t sum, int32_t count)
{
    return (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
}
"""


def average(step: Step, operator: AveragePool) -> Kernel:
    window = operator.window
    whole = not _crosses(operator.source, operator.result, window)
    count = str(window.kernel[0] * window.kernel[1]) if whole else "count"
    each = [
        "int32_t sum = 0;",
        *_window(operator.source, window, whole, "sum += input[{at}];"),
        f"*output++ = ek_clamp(ek_average(sum, {count}), {operator.low}, {operator.high});",
    ]
    counted = ["const int32_t count = (y1 - y0) * (x1 - x0);"]
    return with_source(
        step,
        f"{_size(window)} average pooling, {extents(operator.source, operator.result)}",
        _pixels(operator, whole, [*([] if whole else counted), *_channels(operator, each)]),
        Kernel(
            MAKER,
            "",
            helpers=(AVERAGE, rescaling.CLAMP),
            instructions=_cost(operator, whole) + 6 * operator.result.elements,
        ),
    )


def maximum(step: Step, operator: MaxPool) -> Kernel:
    window = operator.window
    whole = not _crosses(operator.source, operator.result, window)
    most = "if (input[{at}] > most) {{\n    most = input[{at}];\n}}"
    bounded = (operator.low, operator.high) != (-128, 127)
    value = f"ek_clamp(most, {operator.low}, {operator.high})" if bounded else "most"
    each = [
        "int8_t most = -128;",
        *_window(operator.source, window, whole, most),
        f"*output++ = {value};",
    ]
    return with_source(
        step,
        f"{_size(window)} max pooling, {extents(operator.source, operator.result)}",
        _pixels(operator, whole, _channels(operator, each)),
        Kernel(
            MAKER,
            "",
            helpers=(rescaling.CLAMP,) if bounded else (),
            instructions=_cost(operator, whole),
        ),
    )


def mean(step: Step, operator: Mean) -> Kernel:
    source = operator.source
    pixels = source.height * source.width
    offset = -operator.zero_point * pixels
    result = rescaling.stored("sum", operator.rescale, 256 * pixels)
    body = loop(
        "c",
        source.channels,
        [
            f"int32_t sum = {offset};",
            *loop("i", pixels, [f"sum += input[i * {source.channels} + c];"]),
            f"output[c] = {result.text};",
        ],
    )
    comment = f"mean of {pixels} pixels, {source.channels} channels"
    return with_source(step, comment, body, Kernel(MAKER, "", helpers=result.helpers))


def _cost(operator: AveragePool | MaxPool, whole: bool) -> int:
    """Estimate the cost on a Cortex-M4: windows that are always whole are unrolled."""
    places = operator.window.kernel[0] * operator.window.kernel[1]
    each = 2 + 4 * places if whole else 12 + 7 * places
    return operator.result.elements * each


def _size(window: Window) -> str:
    return f"{window.kernel[0]}x{window.kernel[1]}"


def _crosses(source: Image, result: Image, window: Window) -> bool:
    """Return whether some window is partly outside the image."""
    reach = [
        (extent - 1) * stride + (size - 1) * dilation
        for extent, stride, size, dilation in zip(
            (result.height, result.width),
            window.strides,
            window.kernel,
            window.dilations,
            strict=True,
        )
    ]
    top, left = window.padding[:2]
    return bool(top or left or reach[0] >= source.height or reach[1] >= source.width)


def _pixels(operator: AveragePool | MaxPool, whole: bool, each: list[str]) -> list[str]:
    """Return C for every window's part inside the image: rows y0 to y1, columns x0 to x1."""
    source, result, window = operator.source, operator.result, operator.window
    bounds: list[str] = []
    for axis, name, extent in ((0, "y", source.height), (1, "x", source.width)):
        first = f"{name} * {window.strides[axis]}{plus(-window.padding[axis])}"
        size = window.kernel[axis]
        if whole:
            bounds.append(f"const int32_t {name}0 = {first};")
        elif window.dilations == (1, 1):
            bounds += [
                f"const int32_t {name}s = {first}, {name}e = {name}s + {size};",
                f"const int32_t {name}0 = {name}s > 0 ? {name}s : 0;",
                f"const int32_t {name}1 = {name}e < {extent} ? {name}e : {extent};",
            ]
    return loop("y", result.height, loop("x", result.width, [*bounds, *each]))


def _channels(operator: AveragePool | MaxPool, each: list[str]) -> list[str]:
    return loop("c", operator.source.channels, each)


def _window(source: Image, window: Window, whole: bool, statement: str) -> list[str]:
    """Return `statement` for every place of the window inside the image."""
    at = f"(v * {source.width} + u) * {source.channels} + c"
    inner = statement.format(at=at).split("\n")
    if whole:
        down, right = window.dilations
        placed = [f"const int32_t u = x0 + j * {right};", *inner]
        rows = [f"const int32_t v = y0 + i * {down};", *loop("j", window.kernel[1], placed)]
        return loop("i", window.kernel[0], rows)
    if window.dilations == (1, 1):
        row, pixel = source.width * source.channels, source.channels
        columns = [*(line.replace(f"input[{at}]", "*from") for line in inner), f"from += {pixel};"]
        return [
            f"const int8_t *line = input + y0 * {row} + x0 * {pixel} + c;",
            *block(
                "for (int32_t v = y0; v < y1; v++)",
                [
                    "const int8_t *from = line;",
                    *block("for (int32_t u = x0; u < x1; u++)", columns),
                    f"line += {row};",
                ],
            ),
        ]
    inside = f"if (v >= 0 && v < {source.height} && u >= 0 && u < {source.width})"
    return loop(
        "i",
        window.kernel[0],
        loop(
            "j",
            window.kernel[1],
            [
                f"const int32_t v = {_start('y', window, 0)} + i * {window.dilations[0]};",
                f"const int32_t u = {_start('x', window, 1)} + j * {window.dilations[1]};",
                *block(inside, inner),
            ],
        ),
    )


def _start(name: str, window: Window, axis: int) -> str:
    return f"{name} * {window.strides[axis]}{plus(-window.padding[axis])}"
