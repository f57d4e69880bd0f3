"""Clamp indices to the tensor that they address: no step reads or writes elsewhere."""

from __future__ import annotations

from edgekit.aot.c_text import C_TYPES
from edgekit.aot.kernel import Kernel
from edgekit.aot.kernels_portable.text import MAKER, block, loop, with_source
from edgekit.aot.operators import CheckIndices
from edgekit.aot.program import Step

OUTSIDE = 2
"""The status of a step whose index was outside; 1 is for a step number that does not exist."""


def check(step: Step, operator: CheckIndices) -> Kernel:
    source, result = C_TYPES[operator.source], C_TYPES[operator.result]
    depth = len(operator.extents)
    extent = str(operator.extents[0]) if depth == 1 else f"extents[i % {depth}]"
    lines = [f"int64_t index = (int64_t)input[i], last = {extent} - 1;"]
    if operator.counts_from_end:
        lines += block("if (index < 0)", ["index += last + 1;"])
    lines += block(
        "if (index < 0 || index > last)",
        ["index = index < 0 ? 0 : last;", f"outside = {OUTSIDE};"],
    )
    lines.append(f"output[i] = ({result})index;")
    body = ["int outside = 0;"]
    if depth > 1:
        listed = ", ".join(str(extent) for extent in operator.extents)
        body.append(f"static const int32_t extents[{depth}] = {{{listed}}};")
    body += [*loop("i", operator.elements, lines), "return outside;"]
    shared = source == result
    return with_source(
        step,
        f"indices held inside of what they address, {operator.elements} of them",
        body,
        Kernel(
            MAKER,
            "",
            in_place=((0, 0),) if shared else (),
            tells=True,
            instructions=8 * operator.elements,
        ),
        inputs=[(source, "input")],
        output=(result, "output"),
    )
