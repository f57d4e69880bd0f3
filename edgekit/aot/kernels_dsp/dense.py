"""Fully connected layers: a few pairs of output channels share each value of the input.

Several rows are several pixels: those are convolutions of one pixel's window.
"""

from __future__ import annotations

from dataclasses import replace

from edgekit.aot.arithmetic import first_sums, largest_sum
from edgekit.aot.kernel import APART, Constant, Declined, Kernel, shared
from edgekit.aot.kernels_dsp import convolution, rescaling, text
from edgekit.aot.operators import FullyConnected, Rescale
from edgekit.aot.program import Step
from edgekit.base.arrays import Array

_STEPS = 2
"""Steps of four values each in a round of the loop."""
_MOST_PAIRS = (4, 3, 2, 1)


def offer(step: Step, operator: FullyConnected, way: str = "") -> Kernel | Declined:
    outputs, inputs = operator.weights.shape
    if operator.rows > 1:
        return convolution.offer(step, operator.as_convolution(), way)
    if outputs < 2:
        return Declined("there is one output channel")
    reason = rescaling.why_not(operator.rescale, largest_sum(operator.weights, operator.bias))
    if reason:
        return Declined(reason)
    pairs = int(way.split()[0]) // 2 if way else _pairs(outputs)
    depth = -(-inputs // (4 * _STEPS)) * 4 * _STEPS
    order = _order(outputs, pairs)
    chosen = _chosen(operator.rescale, order)
    name, body = _function(operator.rescale, pairs)
    copied = depth != inputs
    source = f"static void {step.name}(const int8_t *restrict input, int8_t *restrict output"
    source += ", void *scratch)\n{\n" if copied else ")\n{\n"
    used = "input"
    if copied:
        used = "padded"
        source += f"""\
    int8_t *padded = (int8_t *)scratch;
    memcpy(padded, input, {inputs});
    memset(padded + {inputs}, 0, {depth - inputs});
"""
    source += f"    {name}({used}, {used} + {depth}, output, {outputs}, "
    source += f"{step.name}_weights, {step.name}_scales);\n}}\n"
    return Kernel(
        maker="edgekit dsp",
        source=source,
        constants=(
            Constant("weights", _weights(operator, order, pairs, depth)),
            Constant("scales", rescaling.table(chosen, first_sums(operator)[order])),
        ),
        helpers=(
            APART,
            text.LOAD_WORD,
            text.EVEN_ODD,
            text.KEEP_ORDER,
            *rescaling.helpers(operator.rescale),
            body,
        ),
        headers=text.HEADERS,
        scratch=depth if copied else 0,
        instructions=_instructions(len(order) // (2 * pairs), pairs, depth),
        note=f"{2 * pairs} channels at a time",
    )


def ways(operator: FullyConnected) -> tuple[str, ...]:
    """Return other numbers of channels at a time."""
    outputs = operator.weights.shape[0]
    if operator.rows > 1:
        return convolution.ways(operator.as_convolution())
    if outputs < 2:
        return ()
    counts = [n for n in _MOST_PAIRS if 2 * n <= outputs and n != _pairs(outputs)]
    return tuple(f"{2 * n} channels" for n in counts)


def _pairs(outputs: int) -> int:
    """Return the pairs of output channels at a time; the last group may overlap the one before."""
    return min(
        (n for n in _MOST_PAIRS if 2 * n <= outputs),
        key=lambda n: -(-outputs // (2 * n)) * (3 + 10 * n),
    )


def _order(outputs: int, pairs: int) -> list[int]:
    starts = [min(first, outputs - 2 * pairs) for first in range(0, outputs, 2 * pairs)]
    return [start + n for start in starts for n in range(2 * pairs)]


def _chosen(rescale: Rescale, order: list[int]) -> Rescale:
    if len(rescale.factors) == 1:
        return rescale
    return replace(rescale, factors=tuple(rescale.factors[channel] for channel in order))


def _weights(operator: FullyConnected, order: list[int], pairs: int, depth: int) -> Array:
    """Pack weights by group, four inputs, pair: a word of inputs 0 and 2, and one of 1 and 3."""
    import numpy as np

    outputs, inputs = operator.weights.shape
    padded = np.zeros((outputs, depth), np.int8)
    padded[:, :inputs] = operator.weights
    # [group, pair, channel, four, half, odd] to [group, four, pair, odd, half, channel].
    parts = padded[order].reshape(-1, pairs, 2, depth // 4, 2, 2)
    return np.ascontiguousarray(parts.transpose(0, 3, 1, 5, 4, 2)).reshape(-1)


def _function(rescale: Rescale, pairs: int) -> tuple[str, str]:
    step = 2 * pairs
    channels = range(step)
    start = ", ".join(f"s{n} = scales[{3 * n}]" for n in channels)
    body = [
        f"for (uint32_t next = 0; next < outputs; next += {step}) {{",
        f"    int8_t *to = output + (next + {step} > outputs ? outputs - {step} : next);",
        "    const int8_t *from = input;",
        "    int32_t factor, shift, half;",
        f"    int32_t {start};",
        "    do {",
    ]
    for n in range(_STEPS):
        body += ["        {", f"            uint32_t word = ek_load_word(from + {4 * n});"]
        body += ["            const int16x2_t even = ek_even_bytes(word);"]
        body += ["            const int16x2_t odd = ek_odd_bytes(word);"]
        for pair in range(pairs):
            for half, values in enumerate(("even", "odd")):
                at = 8 * (n * pairs + pair) + 4 * half
                first, second = f"s{2 * pair}", f"s{2 * pair + 1}"
                body += ["            EK_KEEP_ORDER;"]
                body += [f"            word = ek_load_word(weights + {at});"]
                body += [f"            {first} = __smlad(ek_even_bytes(word), {values}, {first});"]
                body += [f"            {second} = __smlad(ek_odd_bytes(word), {values}, {second});"]
        body += ["        }"]
    body += [f"        from += {4 * _STEPS};", f"        weights += {8 * _STEPS * pairs};"]
    body += ["    } while (from != end);"]
    for n in channels:
        body += [f"    factor = scales[{3 * n + 1}];", f"    shift = scales[{3 * n + 2}];"]
        body += [f"    half = {rescaling.rounding(rescale)};"]
        body += [f"    to[{n}] = {rescaling.stored(rescale, f's{n}')};"]
    body += [f"    scales += {6 * pairs};", "}"]
    signature = """\
static EK_APART void @NAME@(const int8_t *restrict input, const int8_t *end,
    int8_t *restrict output, uint32_t outputs,
    const int8_t *restrict weights, const int32_t *restrict scales)
"""
    return shared("dense", signature, body)


def _instructions(groups: int, pairs: int, depth: int) -> int:
    round_ = _STEPS * (3 + 10 * pairs) + 5
    return 15 + groups * (16 + depth // (4 * _STEPS) * round_ + 2 * pairs * 12)
