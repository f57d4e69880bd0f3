"""Depthwise convolutions: a few channels at a time are split into planes of int16.

In a plane the values of a row are neighbours, so that one instruction multiplies two of them by two
weights, and two results share their loads. A band of rows is split at a time, as many as a small
scratch holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.aot.arithmetic import first_sums
from edgekit.aot.kernel import APART, Constant, Declined, Kernel, shared
from edgekit.aot.kernels_dsp import rescaling, text
from edgekit.aot.operators import DepthwiseConv2D
from edgekit.aot.program import Step
from edgekit.base.arrays import Array

_SCRATCH = 3072


@dataclass(frozen=True)
class _Plan:
    group: int
    """Channels split at a time."""
    band: int
    """Rows of the result made from one split."""
    bands: int
    rows: int
    """Rows of the planes."""
    row: int
    """Values in a plane's row."""

    @property
    def plane(self) -> int:
        return self.rows * self.row

    @property
    def scratch(self) -> int:
        return 2 * self.group * self.plane


@dataclass(frozen=True)
class _Taps:
    """The use of one row of the window by two neighbouring results."""

    pairs: tuple[tuple[int | None, int | None], ...]
    """The taps that share a register; None is zero."""
    uses: tuple[tuple[int, int, str, int], ...]
    """(word of the row, result, instruction, pair), ordered by word."""
    words: int


def offer(step: Step, operator: DepthwiseConv2D, way: str = "") -> Kernel | Declined:
    reason = _why_not(operator)
    if reason:
        return Declined(reason)
    plan, taps = _plan(operator, _scratch_of(way)), _taps(operator)
    # All rows of the current channels are split before any of their results is written.
    in_place = plan.bands == 1 and operator.multiplier == 1
    restrict = "" if in_place else "restrict "
    name, body = _function(operator, plan, taps, restrict)
    source = f"""\
static void {step.name}(const int8_t *{restrict}input, int8_t *{restrict}output, void *scratch)
{{
    {name}(input, output, (int16_t *)scratch, {step.name}_weights, {step.name}_scales);
}}
"""
    return Kernel(
        maker="edgekit dsp",
        source=source,
        constants=(
            Constant("weights", _weights(operator, taps)),
            Constant("scales", rescaling.table(operator.rescale, first_sums(operator))),
        ),
        helpers=(
            APART,
            *(text.LOAD_WORD, text.LOAD_PAIR, text.STORE_PAIR, text.EVEN_ODD, text.PACK),
            *(text.KEEP_ORDER, text.FILL),
            *rescaling.helpers(operator.rescale),
            body,
        ),
        headers=text.HEADERS,
        scratch=plan.scratch,
        in_place=((0, 0),) if in_place else (),
        instructions=_instructions(operator, plan, taps),
        note=f"planes of {plan.group} channels, {plan.band} rows at a time",
    )


def ways(operator: DepthwiseConv2D) -> tuple[str, ...]:
    """Return other heights of a band: low ones split rows twice, high ones need more scratch."""
    found, names = [_plan(operator)], []
    for way in ("scratch 1024", "scratch 2048", "scratch 6144", "scratch 12288"):
        plan = _plan(operator, _scratch_of(way))
        if plan not in found:
            found.append(plan)
            names.append(way)
    return tuple(names)


def _scratch_of(way: str) -> int:
    return int(way.split()[1]) if way else _SCRATCH


def _why_not(operator: DepthwiseConv2D) -> str | None:
    if operator.window.dilations != (1, 1):
        return "the window is dilated"
    if operator.result.width < 2:
        return "the result is one pixel wide"
    return rescaling.why_not(operator.rescale)


def _plan(operator: DepthwiseConv2D, scratch: int = _SCRATCH) -> _Plan:
    height, width = operator.window.kernel
    down, right = operator.window.strides
    group = 4 if operator.source.channels % 4 == 0 and operator.source.width > 1 else 1
    row = max(
        (operator.result.width - 1) * right + width,
        operator.window.padding[1] + operator.source.width,
    )
    row += 1 + (row + 1) % 2
    results = operator.result.height

    def rows(band: int) -> int:
        return (band - 1) * down + height

    fits = [n for n in range(1, results + 1) if 2 * group * row * rows(n) <= scratch]
    bands = -(-results // max(fits, default=1))
    band = -(-results // bands)
    return _Plan(group, band, -(-results // band), rows(band), row)


def _taps(operator: DepthwiseConv2D) -> _Taps:
    width, stride = operator.window.kernel[1], operator.window.strides[1]
    pairs: list[tuple[int | None, int | None]] = []
    doubles: list[tuple[int, int, int]] = []
    singles: list[tuple[int, int, int]] = []
    for result in (0, 1):
        at = {result * stride + tap: tap for tap in range(width)}
        for word in sorted({place // 2 for place in at}):
            low, high = at.get(2 * word), at.get(2 * word + 1)
            if low is not None and high is not None:
                if (low, high) not in pairs:
                    pairs.append((low, high))
                doubles.append((word, result, pairs.index((low, high))))
            else:
                singles.append((word, result, 2 * word + (low is None)))
    uses = [(word, result, "__smlad", pair) for word, result, pair in doubles]
    for word, result, place in singles:
        tap = place - result * stride
        holder = next((pair for pair in pairs if tap in pair), None)
        if holder is None:
            holder = (tap, None)
            pairs.append(holder)
        half = "tb"[holder[0] == tap]
        uses.append((word, result, f"__smla{'bt'[place % 2]}{half}", pairs.index(holder)))
    return _Taps(tuple(pairs), tuple(sorted(uses)), max(use[0] for use in uses) + 1)


def _weights(operator: DepthwiseConv2D, taps: _Taps) -> Array:
    """Pack two pairs into a word for each channel and row: bytes 0 and 2, and bytes 1 and 3."""
    import numpy as np

    weights = np.asarray(operator.weights, np.int8).transpose(2, 0, 1)
    outputs, height, _ = weights.shape
    words = -(-len(taps.pairs) // 2)
    arranged = np.zeros((outputs, height, words, 4), np.int8)
    for index, pair in enumerate(taps.pairs):
        for half, tap in enumerate(pair):
            if tap is not None:
                arranged[:, :, index // 2, index % 2 + 2 * half] = weights[:, :, tap]
    return arranged.reshape(-1)


def _function(
    operator: DepthwiseConv2D, plan: _Plan, taps: _Taps, restrict: str
) -> tuple[str, str]:
    channels, outputs = operator.source.channels, operator.result.channels
    wide, high = operator.result.width, operator.result.height
    last_band = high - plan.band
    begin = "next" if high % plan.band == 0 else f"(next < {last_band} ? next : {last_band})"
    lines = [
        f"for (int32_t group = 0; group < {channels}; group += {plan.group}) {{",
        f"    for (int32_t next = 0; next < {high}; next += {plan.band}) {{",
        f"        const int32_t band = {begin};",
        *(f"        {line}" for line in _parting(operator, plan)),
        *(f"        {line}" for line in _band(operator, plan, taps, wide, outputs)),
        "    }",
        f"    weights += {plan.group * operator.multiplier * _channel_bytes(operator, taps)};",
        f"    scales += {plan.group * operator.multiplier * 3};",
        "}",
    ]
    signature = (
        f"static EK_APART void @NAME@(const int8_t *{restrict}input, int8_t *{restrict}output,\n"
        "    int16_t *restrict planes, const int8_t *restrict weights,\n"
        "    const int32_t *restrict scales)\n"
    )
    return shared(f"depthwise_{channels}", signature, lines)


def _channel_bytes(operator: DepthwiseConv2D, taps: _Taps) -> int:
    return int(operator.window.kernel[0]) * -(-len(taps.pairs) // 2) * 4


def _parting(operator: DepthwiseConv2D, plan: _Plan) -> list[str]:
    """Return C that fills the planes with the rows of one band, padding included."""
    source, zero = operator.source, operator.zero_point
    down = operator.window.strides[0]
    top, left, _, _ = operator.window.padding
    height = operator.window.kernel[0]
    outside = top > 0 or (operator.result.height - 1) * down - top + height > source.height
    before, after = left, plan.row - left - source.width
    margins = [f"ek_fill_16(row + plane * {plan.plane}, {zero}, {before});"] if before else []
    if after:
        end = before + source.width
        margins += [f"ek_fill_16(row + plane * {plan.plane} + {end}, {zero}, {after});"]
    lines = [f"for (int32_t y = 0; y < {plan.rows}; y++) {{"]
    lines += [f"    int16_t *row = planes + y * {plan.row};"]
    lines += [f"    const int32_t line = band * {down} + y - {top};"]
    if outside:
        lines += [
            f"    if (line < 0 || line >= {source.height}) {{",
            f"        for (int32_t plane = 0; plane < {plan.group}; plane++) {{",
            f"            ek_fill_16(row + plane * {plan.plane}, {zero}, {plan.row});",
            "        }",
            "        continue;",
            "    }",
        ]
    if margins:
        lines += [f"    for (int32_t plane = 0; plane < {plan.group}; plane++) {{"]
        lines += [f"        {line}" for line in margins]
        lines += ["    }"]
    pixel = source.channels
    start = f"input + line * {source.width * pixel} + group"
    if plan.group == 1:
        lines += [
            f"    const int8_t *from = {start};",
            f"    for (int32_t x = 0; x < {source.width}; x++) {{",
            f"        row[{left} + x] = from[x * {pixel}];",
            "    }",
        ]
        return [*lines, "}"]
    lines += [
        f"    const int8_t *from = {start};",
        f"    int16_t *to = row + {left};",
        f"    const int16_t *end = to + {source.width - source.width % 2};",
        "    for (; to != end; to += 2) {",
        *(f"        {line}" for line in _part_two(plan, pixel)),
        f"        from += {2 * pixel};",
        "    }",
    ]
    if source.width % 2:
        lines += [
            "    {",
            "        const uint32_t word = ek_load_word(from);",
            "        const int16x2_t even = ek_even_bytes(word), odd = ek_odd_bytes(word);",
            "        to[0] = (int16_t)even;",
            f"        to[{plan.plane}] = (int16_t)odd;",
            f"        to[{2 * plan.plane}] = (int16_t)(even >> 16);",
            f"        to[{3 * plan.plane}] = (int16_t)(odd >> 16);",
            "    }",
        ]
    return [*lines, "}"]


def _part_two(plan: _Plan, pixel: int) -> list[str]:
    return [
        "const uint32_t first = ek_load_word(from);",
        f"const uint32_t second = ek_load_word(from + {pixel});",
        "int16x2_t one = ek_even_bytes(first), two = ek_even_bytes(second);",
        "ek_store_pair(to, ek_low_halves(one, two));",
        f"ek_store_pair(to + {2 * plan.plane}, ek_high_halves(one, two));",
        "one = ek_odd_bytes(first);",
        "two = ek_odd_bytes(second);",
        f"ek_store_pair(to + {plan.plane}, ek_low_halves(one, two));",
        f"ek_store_pair(to + {3 * plan.plane}, ek_high_halves(one, two));",
    ]


def _band(
    operator: DepthwiseConv2D, plan: _Plan, taps: _Taps, wide: int, outputs: int
) -> list[str]:
    """Return C that makes the band's results from the planes, channel by channel."""
    height = operator.window.kernel[0]
    down, right = operator.window.strides
    times = operator.multiplier
    per_row = -(-len(taps.pairs) // 2)
    loads: list[str] = []
    for row in range(height):
        for word in range(per_row):
            index = row * per_row + word
            loads += [f"word = ek_load_word(weight + {4 * index});"]
            loads += [f"const int16x2_t w{row}_{2 * word} = ek_even_bytes(word);"]
            if 2 * word + 1 < len(taps.pairs):
                loads += [f"const int16x2_t w{row}_{2 * word + 1} = ek_odd_bytes(word);"]
    sums: list[str] = []
    for row in range(height):
        for word in range(taps.words):
            sums += ["EK_KEEP_ORDER;", f"pair = ek_load_pair(from + {row * plan.row + 2 * word});"]
            sums += [
                f"{'ab'[result]} = {call}(pair, w{row}_{which}, {'ab'[result]});"
                for at, result, call, which in taps.uses
                if at == word
            ]
    rescale = operator.rescale
    even = wide % 2 == 0
    lines = [f"for (int32_t channel = 0; channel < {plan.group * times}; channel++) {{"]
    body = [
        f"const int8_t *weight = weights + channel * {_channel_bytes(operator, taps)};",
        "const int32_t *scale = scales + channel * 3;",
        "const int32_t start = scale[0], factor = scale[1], shift = scale[2];",
        f"const int32_t half = {rescaling.rounding(rescale)};",
        "uint32_t word;",
        *loads,
        f"int8_t *to = output + band * {wide * outputs} + group * {times} + channel;",
        f"const int16_t *plane = planes + channel{'' if times == 1 else f' / {times}'}"
        f" * {plan.plane};",
        f"for (int32_t y = 0; y < {plan.band}; y++) {{",
        "    const int16_t *from = plane;",
        f"    const int16_t *end = plane + {(wide - wide % 2) * right};",
        f"    for (; from != end; from += {2 * right}) {{",
        "        int32_t a = start, b = start;",
        "        int16x2_t pair;",
        *(f"        {line}" for line in sums),
        f"        to[0] = {rescaling.stored(rescale, 'a')};",
        f"        to[{outputs}] = {rescaling.stored(rescale, 'b')};",
        f"        to += {2 * outputs};",
        "    }",
    ]
    if not even:
        body += [
            "    {",
            "        int32_t a = start;",
            "        int16x2_t pair;",
            *(f"        {line}" for line in _only_first(sums)),
            f"        *to = {rescaling.stored(rescale, 'a')};",
            f"        to += {outputs};",
            "    }",
        ]
    body += [f"    plane += {down * plan.row};", "}"]
    return [*lines, *(f"    {line}" for line in body), "}"]


def _only_first(sums: list[str]) -> list[str]:
    """Return the sums of the first result alone, and the loads that it needs."""
    kept = [line for line in sums if not line.startswith("b = ")]
    return [
        line
        for line, after in zip(kept, [*kept[1:], ""], strict=True)
        if not line.startswith("pair = ") or after.startswith("a = ")
    ]


def _instructions(operator: DepthwiseConv2D, plan: _Plan, taps: _Taps) -> int:
    height = operator.window.kernel[0]
    groups = operator.source.channels // plan.group
    wide = operator.result.width
    parted = plan.rows * (40 + operator.source.width * (9 if plan.group == 4 else 5))
    a_pair = height * (taps.words + len(taps.uses)) + 14
    a_row = 8 + -(-wide // 2) * a_pair
    a_channel = 25 + 3 * height + plan.band * a_row
    a_band = 20 + parted + plan.group * operator.multiplier * a_channel
    return round(groups * plan.bands * a_band)
