"""Convolutions: strips of a few pixels, widened to int16, multiplied with all output channels.

A strip's columns are stored one after another, each from top to bottom, so that a window is one run
of memory and its neighbour the same run a little further on. The weights are in the order of their
use: one word holds two values for each of two output channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgekit.aot.arithmetic import first_sums, largest_sum
from edgekit.aot.kernel import APART, Constant, Declined, Kernel, shared
from edgekit.aot.kernels_dsp import rescaling, text
from edgekit.aot.operators import Conv2D, Rescale
from edgekit.aot.program import Step
from edgekit.base.arrays import Array

_TILE_COST = {1: 6 / 4, 2: 9 / 8, 3: 12 / 12, 4: 15 / 16}
"""Instructions per multiplication, for so many pixels at once."""
_LEAST_UNROLLED, _MOST_UNROLLED = 5, 10
_STRIP_BYTES = 1024
"""The size up to which a strip has several tiles: neighbours share columns."""


@dataclass(frozen=True)
class _Plan:
    """The loops of one convolution."""

    rows: int
    """Rows of strips; a pointwise convolution is a single row of all pixels."""
    columns: int
    tile: int
    tiles: int
    """Tiles in a strip."""
    column: int
    """Values in a strip's column, padded to an even number."""
    depth: int
    """Values in a window, padded likewise."""
    step: int
    """Columns from one pixel's window to the next one's."""
    width: int
    """Columns in a strip."""
    in_fours: bool
    """Whether values are widened four at a time, which changes their order."""

    @property
    def strip(self) -> int:
        return self.tile * self.tiles

    @property
    def scratch(self) -> int:
        return 2 * self.width * self.column

    @property
    def pointwise(self) -> bool:
        return self.rows == 1 and self.step == 1 and self.column == self.depth


def offer(step: Step, operator: Conv2D, way: str = "") -> Kernel | Declined:
    reason = _why_not(operator)
    if reason:
        return Declined(reason)
    plan = _plan(operator, *_parse_way(way))
    weights, bias = _arranged(operator, plan)
    name, body = _function(operator, plan)
    source = f"""\
static void {step.name}(const int8_t *restrict input, int8_t *restrict output, void *scratch)
{{
    {name}(input, output, (int16_t *)scratch, {step.name}_weights, {step.name}_scales);
}}
"""
    return Kernel(
        maker="edgekit dsp",
        source=source,
        constants=(
            Constant("weights", weights),
            Constant("scales", rescaling.table(_paired(operator), bias)),
        ),
        helpers=(*_helpers(operator, plan), body),
        headers=text.HEADERS,
        scratch=plan.scratch,
        instructions=_instructions(operator, plan),
        note=f"{plan.tile} pixels by 2 channels at a time",
    )


def ways(operator: Conv2D) -> tuple[str, ...]:
    """Return other tiles and strips: the instruction count is least reliable for these."""
    own, found, names = _plan(operator), [_plan(operator)], []
    for way in (*(f"tile {n}" for n in _TILE_COST), "strip 256", "strip 2048", "strip 4096"):
        plan = _plan(operator, *_parse_way(way))
        if plan not in found and plan.tile <= own.columns:
            found.append(plan)
            names.append(way)
    return tuple(names)


def _parse_way(way: str) -> tuple[int | None, int]:
    """Return the tile of a way, if it names one, and the bytes of a strip."""
    what, _, number = way.partition(" ")
    return int(number) if what == "tile" else None, int(number) if what == "strip" else _STRIP_BYTES


def _why_not(operator: Conv2D) -> str | None:
    if operator.window.dilations != (1, 1):
        return "the window is dilated"
    if operator.result.channels < 2:
        return "there is one output channel"
    return rescaling.why_not(operator.rescale, largest_sum(operator.weights, operator.bias))


def _plan(operator: Conv2D, tile: int | None = None, strip: int = _STRIP_BYTES) -> _Plan:
    height, width = operator.window.kernel
    stride = operator.window.strides[1]
    channels = operator.source.channels
    column = height * channels
    if _is_pointwise(operator):
        rows, columns, step = 1, operator.result.height * operator.result.width, 1
        column += channels % 2
    else:
        rows, columns, step = operator.result.height, operator.result.width, stride
        column += column * step % 2
    depth = width * column
    depth += depth % 2
    tile = min(
        (n for n in _TILE_COST if n <= columns),
        key=lambda n: (n != tile, -(-columns // n) * n * _TILE_COST[n], -n),
    )
    tiles = 1
    whole = -(-columns // tile)
    while tiles < whole and 2 * column * (((tiles + 1) * tile - 1) * step + width) <= strip:
        tiles += 1
    tiles = -(-whole // -(-whole // tiles))
    if tiles * tile > columns:
        tiles = max(1, columns // tile)
    return _Plan(
        rows,
        columns,
        tile,
        tiles,
        column,
        depth,
        step,
        (tiles * tile - 1) * step + width + (depth - width * column),
        channels % 4 == 0,
    )


def _is_pointwise(operator: Conv2D) -> bool:
    window = operator.window
    return window.kernel == (1, 1) and window.strides == (1, 1) and not any(window.padding)


def _pairs(operator: Conv2D) -> list[tuple[int, int]]:
    """Return output channels in pairs; the last pair overlaps the one before if their number is
    odd."""
    last = operator.result.channels - 2
    return [(first, first + 1) for first in (min(n, last) for n in range(0, last + 2, 2))]


def _paired(operator: Conv2D) -> Rescale:
    factors = operator.rescale.factors
    if len(factors) == 1:
        return operator.rescale
    chosen = tuple(factors[channel] for pair in _pairs(operator) for channel in pair)
    return replace(operator.rescale, factors=chosen)


def _arranged(operator: Conv2D, plan: _Plan) -> tuple[Array, Array]:
    """Return weights in the order of their use, and the initial value of each sum."""
    import numpy as np

    weights = np.asarray(operator.weights, np.int8)
    outputs, height, width, channels = weights.shape
    columns = np.zeros((outputs, width, plan.column), np.int8)
    columns[:, :, : height * channels] = weights.transpose(0, 2, 1, 3).reshape(outputs, width, -1)
    windows = np.zeros((outputs, plan.depth), np.int8)
    windows[:, : width * plan.column] = columns.reshape(outputs, -1)
    if plan.in_fours:
        windows = windows.reshape(outputs, -1, 2, 2).transpose(0, 1, 3, 2).reshape(outputs, -1)
    order = np.array(_pairs(operator))
    # [pair, which of two channels, pair of values, which of two] to bytes a0 b0 a1 b1.
    together = windows[order].reshape(len(order), 2, -1, 2).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(together).reshape(-1), first_sums(operator)[order].reshape(-1)


def _helpers(operator: Conv2D, plan: _Plan) -> tuple[str, ...]:
    widen = (text.WIDEN_16 if operator.source.channels % 16 == 0 else text.WIDEN,)
    used = [
        APART,
        text.LOAD_WORD,
        text.LOAD_PAIR,
        text.STORE_PAIR,
        text.EVEN_ODD,
        text.KEEP_ORDER,
        text.tile(plan.tile),
    ]
    used += [*(widen if plan.in_fours else ()), *rescaling.helpers(operator.rescale)]
    return tuple(used)


def _function(operator: Conv2D, plan: _Plan) -> tuple[str, str]:
    make = _pointwise_strip if _is_pointwise(operator) else _strip
    outputs = operator.result.channels
    loop, rest, unrolled = _unrolled(plan.depth // 2)
    stride = plan.step * plan.column
    pixels = range(plan.tile)
    tile = f"EK_TILE_{plan.tile}"
    inner = [f"{tile}(window + {2 * n}, {stride}, weights + {4 * n});" for n in range(unrolled)]
    after = [f"{tile}(window + {2 * n}, {stride}, weights + {4 * n});" for n in range(rest)]
    body: list[str] = []
    if loop > 1:
        body += [f"const int8_t *end = weights + {4 * unrolled * loop};"]
        body += ["do {", *(f"    {line}" for line in inner)]
        body += [f"    window += {2 * unrolled};", f"    weights += {4 * unrolled};"]
        body += ["} while (weights != end);"]
    else:
        body += [*inner, f"weights += {4 * unrolled};"] if unrolled else []
        body += [f"window += {2 * unrolled};"] if unrolled and rest else []
    body += after
    body += [f"weights += {4 * rest};"] if rest else []
    store: list[str] = []
    for which, row in enumerate("ab"):
        store += [f"factor = scales[{3 * which + 1}];", f"shift = scales[{3 * which + 2}];"]
        store += [f"half = {rescaling.rounding(operator.rescale)};"]
        store += [
            f"to[{n * outputs + which}] = {rescaling.stored(operator.rescale, f'{row}{n}')};"
            for n in pixels
        ]
    starts = ", ".join(
        f"{row}{n} = {f'scales[{3 * which}]' if n == 0 else f'{row}0'}"
        for which, row in enumerate("ab")
        for n in pixels
    )
    channel = (
        "channel" if outputs % 2 == 0 else f"(channel < {outputs - 2} ? channel : {outputs - 2})"
    )
    tiles = [
        f"for (uint32_t channel = 0; channel < {outputs}; channel += 2) {{",
        f"    int8_t *to = pixel + {channel};",
        "    const int16_t *window = windows;",
        f"    int32_t {starts};",
        "    int32_t factor, shift, half;",
        *(f"    {line}" for line in (*body, *store)),
        "    scales += 6;",
        "}",
    ]
    if plan.tiles > 1:
        tiles = [
            f"for (uint32_t tile = 0; tile < {plan.tiles}; tile++) {{",
            f"    const int16_t *windows = strip + tile * {plan.tile * stride};",
            f"    int8_t *pixel = first + tile * {plan.tile * outputs};",
            "    const int8_t *weights = all_weights;",
            "    const int32_t *scales = all_scales;",
            *(f"    {line}" for line in tiles),
            "}",
        ]
    else:
        tiles = [
            "const int16_t *windows = strip;",
            "int8_t *pixel = first;",
            "const int8_t *weights = all_weights;",
            "const int32_t *scales = all_scales;",
            *tiles,
        ]
    lines = make(operator, plan, tiles)
    kind = f"conv_{operator.source.channels}x{outputs}"
    signature = (
        "static EK_APART void @NAME@(const int8_t *restrict input, int8_t *restrict output,\n"
        "    int16_t *restrict strip, const int8_t *restrict all_weights,\n"
        "    const int32_t *restrict all_scales)\n"
    )
    return shared(kind, signature, lines)


def _unrolled(steps: int) -> tuple[int, int, int]:
    """Return the rounds of the loop, the steps after it, and the steps per round."""
    if steps <= 2 * _MOST_UNROLLED:
        return 1, 0, steps
    best = min(range(_LEAST_UNROLLED, _MOST_UNROLLED + 1), key=lambda n: (steps % n, -n))
    return steps // best, steps % best, best


def _pointwise_strip(operator: Conv2D, plan: _Plan, tiles: list[str]) -> list[str]:
    channels, outputs = operator.source.channels, operator.result.channels
    count = plan.strip * channels
    if plan.in_fours:
        widen = [f"{_widen(channels)}(from, strip, {count});"]
    elif channels % 2 == 0:
        widen = [
            f"for (uint32_t i = 0; i < {count}; i++) {{",
            "    strip[i] = from[i];",
            "}",
        ]
    else:
        widen = [
            f"for (uint32_t i = 0; i < {plan.strip}; i++) {{",
            f"    int16_t *column = strip + i * {plan.column};",
            f"    for (uint32_t j = 0; j < {channels}; j++) {{",
            f"        column[j] = from[i * {channels} + j];",
            "    }",
            f"    column[{channels}] = 0;",
            "}",
        ]
    last = plan.columns - plan.strip
    start = "next" if plan.columns % plan.strip == 0 else f"(next < {last} ? next : {last})"
    return [
        f"for (uint32_t next = 0; next < {plan.columns}; next += {plan.strip}) {{",
        f"    const uint32_t place = {start};",
        f"    const int8_t *from = input + place * {channels};",
        f"    int8_t *first = output + place * {outputs};",
        *(f"    {line}" for line in (*widen, *tiles)),
        "}",
    ]


def _widen(channels: int) -> str:
    return "ek_widen_16" if channels % 16 == 0 else "ek_widen"


def _strip(operator: Conv2D, plan: _Plan, tiles: list[str]) -> list[str]:
    source, outputs = operator.source, operator.result.channels
    height = operator.window.kernel[0]
    top, left, _, _ = operator.window.padding
    down, right = operator.window.strides
    last = plan.columns - plan.strip
    start = "next" if plan.columns % plan.strip == 0 else f"(next < {last} ? next : {last})"
    clipped_rows = top > 0 or (plan.rows - 1) * down - top + height > source.height
    columns_used = (plan.columns - 1) * right - left + operator.window.kernel[1]
    clipped_columns = left > 0 or columns_used > source.width
    fill = (
        columns_used > source.width
        or plan.width > (plan.strip - 1) * right + operator.window.kernel[1]
    )
    row = source.width * source.channels
    lines = [f"for (int32_t y = 0; y < {plan.rows}; y++) {{"]
    inner = [f"const int32_t top = y * {down} - {top};"]
    if clipped_rows:
        inner += [
            "const int32_t begin = top < 0 ? -top : 0;",
            f"const int32_t below = {source.height} - top;",
            f"const int32_t end = below < {height} ? below : {height};",
        ]
    low, high = ("begin", "end") if clipped_rows else ("0", str(height))
    inner += [
        f"for (int32_t next = 0; next < {plan.columns}; next += {plan.strip}) {{",
        f"    const int32_t place = {start};",
        f"    const int32_t left = place * {right} - {left};",
        f"    int8_t *first = output + (y * {plan.columns} + place) * {outputs};",
    ]
    fetch = _column(operator, plan, low, high, clipped_rows, row)
    inner += [f"    for (int32_t x = 0; x < {plan.width}; x++) {{"]
    inner += [f"        int16_t *column = strip + x * {plan.column};"]
    if clipped_columns or fill:
        inner += [
            f"        if (left + x < 0 || left + x >= {source.width}) {{",
            f"            for (int32_t i = 0; i < {plan.column}; i++) {{",
            f"                column[i] = {operator.zero_point};",
            "            }",
            "            continue;",
            "        }",
        ]
    inner += [f"        {line}" for line in fetch]
    inner += ["    }", *(f"    {line}" for line in tiles), "}"]
    return [*lines, *(f"    {line}" for line in inner), "}"]


def _column(
    operator: Conv2D, plan: _Plan, low: str, high: str, clipped: bool, row: int
) -> list[str]:
    """Return C for one column of the strip, from the rows `low` to `high` of the window."""
    channels, zero = operator.source.channels, operator.zero_point
    height = operator.window.kernel[0]
    lines = [f"const int8_t *from = input + (top + {low}) * {row} + (left + x) * {channels};"]
    if clipped:
        lines += [f"for (int32_t i = 0; i < {low} * {channels}; i++) {{"]
        lines += [f"    column[i] = {zero};", "}"]
    lines += [f"for (int32_t i = {low}; i < {high}; i++, from += {row}) {{"]
    if plan.in_fours:
        to = f"column + i * {channels}"
        lines += [f"    {_widen(channels)}(from, {to}, {channels});"]
    else:
        lines += [f"    column[i * {channels} + {n}] = from[{n}];" for n in range(channels)]
    lines += ["}"]
    if clipped:
        lines += [f"for (int32_t i = {high} * {channels}; i < {height * channels}; i++) {{"]
        lines += [f"    column[i] = {zero};", "}"]
    return lines


def _instructions(operator: Conv2D, plan: _Plan) -> int:
    outputs = operator.result.channels + operator.result.channels % 2
    strips = plan.rows * -(-plan.columns // plan.strip)
    widened = plan.width * plan.column * (1.4 if plan.in_fours else 2.5)
    columns = 0.0 if plan.pointwise else plan.width * (20 + 8 * operator.window.kernel[0])
    steps = plan.depth // 2
    a_tile = steps * (3 + 3 * plan.tile) + steps / 8 * 4 + 22 + 12 * plan.tile
    return round(strips * (40 + widened + columns + plan.tiles * (10 + outputs / 2 * a_tile)))
