"""Convolutions: sixteen values of a window at a time for four output channels.

Pointwise convolutions read the image itself. Others copy the columns that a row of results needs,
each from top to bottom and one after another, so that a window is one run of memory. The weights
are in the order of their use, and are zero where a vector reaches past its window.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.aot.arithmetic import first_sums, largest_sum
from edgekit.aot.kernel import APART, Constant, Declined, Kernel, shared
from edgekit.aot.kernels_mve import rescaling, text
from edgekit.aot.operators import Conv2D, FullyConnected, Window
from edgekit.aot.program import Step
from edgekit.base.arrays import Array

_UNROLLED = 9
"""The most vectors of a window that are unrolled completely."""
_MOST_UNROLLED = 40
_ROUND = 4
_ROUNDS = (2, 6, 8)
"""Other counts that are worth measuring."""
_ALL = "unrolled"


@dataclass(frozen=True)
class _Plan:
    pointwise: bool
    pixels: int
    """Pixels in a row of results; all of them if pointwise."""
    column: int
    """Bytes of a column of the window."""
    depth: int
    """Bytes of a window."""
    vectors: int
    step: int
    """Bytes from one pixel's window to the next one's."""
    columns: int
    scratch: int

    @property
    def partial(self) -> int:
        """The readable bytes of the last vector; 0 where all of them are."""
        return self.depth % 16 if self.pointwise else 0


def offer(step: Step, operator: Conv2D, way: str = "") -> Kernel | Declined:
    if operator.window.dilations != (1, 1):
        return Declined("the window is dilated")
    if operator.result.channels < 4:
        return Declined("there are fewer than four output channels")
    reason = rescaling.why_not(operator.rescale, largest_sum(operator.weights, operator.bias))
    if reason:
        return Declined(reason)
    plan = _plan(operator)
    fours = _fours(operator.result.channels)
    name, body = _function(operator, plan, fours, way)
    arguments = f"input, output, {step.name}_weights, {step.name}_scales"
    scratch = "" if plan.pointwise else ", void *scratch"
    source = f"""\
static void {step.name}(const int8_t *restrict input, int8_t *restrict output{scratch})
{{
    {name}({arguments}{"" if plan.pointwise else ", (int8_t *)scratch"});
}}
"""
    eight = operator.result.channels % 8 == 0
    helpers = [*(() if plan.pointwise else (text.COPY, text.FILL))]
    helpers += [APART, text.FOUR_SUMS, rescaling.helper(operator.rescale)]
    helpers += [rescaling.STORE_EIGHT if eight else rescaling.STORE_FOUR, body]
    return Kernel(
        maker="edgekit mve",
        source=source,
        constants=(
            Constant("weights", _weights(operator, plan, fours), 16),
            Constant("scales", rescaling.table(operator.rescale, first_sums(operator), fours), 16),
        ),
        helpers=tuple(helpers),
        headers=rescaling.HEADERS,
        scratch=plan.scratch,
        instructions=_instructions(operator, plan, fours),
        note="four channels at a time",
    )


def ways(kernel: tuple[int, int], channels: int) -> tuple[str, ...]:
    """Return other counts of vectors in a round of the loop, where there is one."""
    vectors = -(-kernel[0] * kernel[1] * channels // 16) - 1
    if vectors <= _UNROLLED:
        return ("round 4",) if vectors >= 2 * _ROUND else ()
    rounds = tuple(f"round {n}" for n in _ROUNDS if 2 * n <= vectors)
    return (*rounds, _ALL) if vectors <= _MOST_UNROLLED else rounds


def _round_of(way: str, vectors: int) -> int:
    """Return the vectors in a round of the loop; all of them where there is no loop."""
    if way.startswith("round"):
        return int(way.split()[1])
    return vectors if way == _ALL or vectors <= _UNROLLED else _ROUND


def offer_dense(step: Step, operator: FullyConnected, way: str = "") -> Kernel | Declined:
    """Offer a fully connected layer as a convolution whose pixels are its rows."""
    return offer(step, operator.as_convolution(), way)


def _plan(operator: Conv2D) -> _Plan:
    height, width = operator.window.kernel
    stride = operator.window.strides[1]
    channels = operator.source.channels
    column, depth = height * channels, height * width * channels
    vectors = -(-depth // 16)
    if operator.window == Window((1, 1)):
        pixels = operator.result.height * operator.result.width
        return _Plan(True, pixels, column, depth, vectors, channels, 0, 0)
    pixels = operator.result.width
    columns = (pixels - 1) * stride + width
    scratch = columns * column + vectors * 16 - depth
    return _Plan(False, pixels, column, depth, vectors, stride * column, columns, scratch)


def _fours(outputs: int) -> list[list[int]]:
    """Return output channels in fours; the last four may overlap those before."""
    if outputs % 8 == 0:
        return [
            [8 * n + odd + 2 * i for i in range(4)] for n in range(outputs // 8) for odd in (0, 1)
        ]
    starts = [min(first, outputs - 4) for first in range(0, outputs, 4)]
    return [[start + n for n in range(4)] for start in starts]


def _weights(operator: Conv2D, plan: _Plan, fours: list[list[int]]) -> Array:
    """Pack four channels, sixteen values of the window: channel after channel."""
    import numpy as np

    weights = np.asarray(operator.weights, np.int8)
    outputs = len(weights)
    windows = np.zeros((outputs, plan.vectors * 16), np.int8)
    windows[:, : plan.depth] = weights.transpose(0, 2, 1, 3).reshape(outputs, -1)
    together = windows[np.array(fours)].reshape(len(fours), 4, plan.vectors, 16)
    return np.ascontiguousarray(together.transpose(0, 2, 1, 3)).reshape(-1)


def _function(operator: Conv2D, plan: _Plan, fours: list[list[int]], way: str) -> tuple[str, str]:
    outputs, rescale = operator.result.channels, operator.rescale
    eight = outputs % 8 == 0
    zero, low, high = rescale.zero_point, rescale.low, rescale.high
    one = [
        f"for (int32_t channel = 0; channel < {outputs}; channel += {8 if eight else 4}) {{",
    ]
    for half in ("even", "odd") if eight else ("values",):
        one += [
            f"    int32x4_t {half};",
            "    {",
            *(f"        {line}" for line in _sums(plan, way)),
        ]
        scaled = f"{rescaling.name(rescale)}(sum, vldrwq_s32(scale + 4), vldrwq_s32(scale + 8))"
        one += [f"        {half} = {scaled};", "        scale += 12;", "    }"]
    if eight:
        one += [f"    ek_store_eight(to + channel, even, odd, {zero}, {low}, {high});", "}"]
    else:
        place = (
            "channel"
            if outputs % 4 == 0
            else f"(channel < {outputs - 4} ? channel : {outputs - 4})"
        )
        one += [f"    ek_store_four(to + {place}, values, {zero}, {low}, {high});", "}"]
    pixel = [
        f"for (int32_t x = 0; x < {plan.pixels}; x++) {{",
        f"    const int8_t *window = {'input' if plan.pointwise else 'strip'} + x * {plan.step};",
        "    const int8_t *weight = weights;",
        "    const int32_t *scale = scales;",
        *(f"    {line}" for line in one),
        f"    to += {outputs};",
        "}",
    ]
    if plan.pointwise:
        lines = ["int8_t *to = output;", *pixel]
        strip = ""
    else:
        lines = ["int8_t *to = output;", *_rows(operator, plan, pixel)]
        strip = ", int8_t *restrict strip"
    signature = (
        "static EK_APART void @NAME@(const int8_t *restrict input, int8_t *restrict output,\n"
        "    const int8_t *restrict weights, const int32_t *restrict scales"
        f"{strip})\n"
    )
    return shared(f"conv_{operator.source.channels}x{outputs}", signature, lines)


def _sums(plan: _Plan, way: str) -> list[str]:
    """Return C that makes `sum`, of four channels, from a window."""
    vectors = ["EK_LOAD_ALL"] * plan.vectors
    if plan.partial:
        vectors[-1] = "EK_LOAD_REST"
    steps = [f'EK_FOUR_SUMS("vmladava.s8", "+&", {load});' for load in vectors]
    steps[0] = f'EK_FOUR_SUMS("vmladav.s8", "=&", {vectors[0]});'
    lines = [
        "int32_t a, b, c, d;",
        "int8x16_t x, w;",
        "const int8_t *from = window;",
        f"const uint32_t rest = {plan.partial};" if plan.partial else "const uint32_t rest = 0;",
    ]
    middle = steps[1:-1] if plan.partial else steps[1:]
    last = steps[-1:] if plan.partial and plan.vectors > 1 else []
    at_once = _round_of(way, len(middle))
    if len(middle) > at_once:
        rounds, left = divmod(len(middle), at_once)
        lines += [steps[0], f"for (int32_t i = 0; i < {rounds}; i++) {{"]
        lines += [*(f"    {line}" for line in middle[:at_once]), "}", *middle[:left], *last]
    else:
        lines += [steps[0], *middle, *last]
    return [*lines, "const int32x4_t sum = vaddq_s32(ek_four(a, b, c, d), vldrwq_s32(scale));"]


def _rows(operator: Conv2D, plan: _Plan, pixel: list[str]) -> list[str]:
    source = operator.source
    height = operator.window.kernel[0]
    down = operator.window.strides[0]
    top, left, _, _ = operator.window.padding
    row, channels = source.width * source.channels, source.channels
    before = left
    inside = min(source.width, plan.columns - left)
    after = plan.columns - left - inside
    slack = plan.vectors * 16 - plan.depth
    lines: list[str] = []
    if before:
        lines += [f"ek_fill(strip, {operator.zero_point}, {before * plan.column});"]
    if after or slack:
        end = (before + inside) * plan.column
        count = after * plan.column + slack
        lines += [f"ek_fill(strip + {end}, {operator.zero_point}, {count});"]
    clipped = top > 0 or (operator.result.height - 1) * down - top + height > source.height
    lines += [f"for (int32_t y = 0; y < {operator.result.height}; y++) {{"]
    inner = [f"const int32_t top = y * {down} - {top};"]
    begin, end_ = "0", str(height)
    if clipped:
        begin, end_ = "begin", "end"
        inner += ["const int32_t begin = top < 0 ? -top : 0;"]
        inner += [f"const int32_t below = {source.height} - top;"]
        inner += [f"const int32_t end = below < {height} ? below : {height};"]
    inner += [
        f"const int8_t *line = input + (top + {begin}) * {row};",
        f"int8_t *column = strip + {before * plan.column};",
        f"for (int32_t x = 0; x < {inside}; x++) {{",
        "    const int8_t *from = line;",
    ]
    if clipped:
        inner += ["    if (begin) {"]
        inner += [f"        ek_fill(column, {operator.zero_point}, begin * {channels});", "    }"]
    inner += [f"    for (int32_t i = {begin}; i < {end_}; i++) {{"]
    if channels < 8:
        inner += [f"        column[i * {channels} + {n}] = from[{n}];" for n in range(channels)]
    else:
        inner += [f"        ek_copy(column + i * {channels}, from, {channels});"]
    inner += [f"        from += {row};", "    }"]
    if clipped:
        fill = f"ek_fill(column + end * {channels}, {operator.zero_point}, "
        inner += [f"    if (end < {height}) {{"]
        inner += [f"        {fill}({height} - end) * {channels});", "    }"]
    inner += [f"    line += {channels};", f"    column += {plan.column};", "}", *pixel]
    return [*lines, *(f"    {line}" for line in inner), "}"]


def _instructions(operator: Conv2D, plan: _Plan, fours: list[list[int]]) -> int:
    a_four = plan.vectors * 9 + (3 if plan.partial else 0) + 15
    pixels = operator.result.height * operator.result.width
    copied = 0.0
    if not plan.pointwise:
        channels = operator.source.channels
        a_run = 1.5 * channels if channels < 8 else 4 * -(-channels // 16)
        copied = (
            operator.result.height * plan.columns * (10 + operator.window.kernel[0] * (3 + a_run))
        )
    return round(30 + copied + pixels * (15 + len(fours) * a_four))
