"""A test that runs where there is a C compiler: it runs the reference inputs through the C, and
compares with the results of a runtime other than edgekit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.aot.c_text import C_TYPES, float_text, values_text
from edgekit.aot.tree import Origin, Port, TreePlan, ports
from edgekit.aot.write_header import banner
from edgekit.base.varying import padded, without_lengths
from edgekit.models.comparison import ALL_ZERO_ATOL, QUANTISED_STEPS, Leeway, tolerance_for

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.tensors import TensorSpec

_COMPARE = """\
static int compare(const char *name, const {type} *expected, const {type} *actual, long count,
    double rtol, double of_max, double atol)
{
    double largest = 0.0, worst = 0.0;
    long wrong = 0;
    for (long i = 0; i < count; ++i) {
        const double size = fabs((double)expected[i]);
        if (size <= DBL_MAX && size > largest) largest = size;
    }
    for (long i = 0; i < count; ++i) {
        const double want = (double)expected[i], got = (double)actual[i];
        const double allowed = rtol * fabs(want) + of_max * largest + atol;
        const double error = fabs(want - got);
        const int same = want == got || (isnan(want) && isnan(got));
        if (!same && !(error <= allowed)) ++wrong;
        if (!same && !(error <= worst)) worst = error;
    }
    printf("%-24s %ld elements, largest %g, worst error %g: %s\\n", name, count, largest, worst,
        wrong == 0 ? "ok" : "WRONG");
    if (wrong != 0) printf("  %ld elements are further off than they may be\\n", wrong);
    return wrong != 0;
}
"""


def vectors_text(
    origin: Origin,
    ends: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    leeways: Mapping[str, Leeway],
) -> str:
    """Return the test's C; `ends` are the program's inputs and outputs, with the lengths of those
    whose size data decides."""
    import numpy as np

    _, own = without_lengths(*ends)
    whole = padded(own, outputs)
    expected = {spec.name: array for spec, array in zip(ends[1], whole, strict=True)}
    lines = [*banner(origin, "reference inputs, and what must come out"), "#include <math.h>"]
    lines += ["#include <stdint.h>", ""]
    for specs, arrays, word in ((ends[0], inputs, "input"), (ends[1], expected, "expected")):
        for k, spec in enumerate(specs):
            array = arrays[spec.name]
            lines.append(f"static const {C_TYPES[spec.dtype]} {word}_{k}[{array.size}] = {{")
            lines += [*values_text(array), "};", ""]
    for k, spec in enumerate(own):
        if spec.varying:
            counts = np.zeros(spec.shape, np.uint8)
            counts[tuple(map(slice, outputs[spec.name].shape))] = 1
            lines += ["/* The elements that count. */"]
            lines.append(f"static const uint8_t counts_{k}[{counts.size}] = {{")
            lines += [*values_text(counts), "};", ""]
    lines += ["/* The tolerance of each output for rounding inside the model. */"]
    for k, spec in enumerate(ends[1]):
        allowed = leeways[spec.name].allowed if spec.name in leeways else 0.0
        lines.append(f"static const double leeway_{k} = {float_text(allowed, 'float64')};")
    return "\n".join(lines)


def test_text(plan: TreePlan) -> str:
    name = plan.name
    inputs, outputs = ports(plan)
    kinds = dict.fromkeys(C_TYPES[port.spec.dtype] for port in outputs)
    lines = [
        *banner(plan.origin, "does it compute what it should?"),
        "#include <float.h>",
        "#include <math.h>",
        "#include <stdint.h>",
        "#include <stdio.h>",
        "",
        f'#include "{name}.h"',
        '#include "vectors.h"',
        "",
        "#if defined(__GNUC__) || defined(__clang__)",
        "#define ALIGNED(bytes) __attribute__((aligned(bytes)))",
        "#else",
        "#define ALIGNED(bytes)",
        "#endif",
        "",
        f"static unsigned char arena[{plan.macros}_ARENA_BYTES]",
        f"    ALIGNED({plan.macros}_ARENA_ALIGNMENT);",
        "",
    ]
    for kind in kinds:
        # A function for each type of an output.
        text = _COMPARE.replace("{type}", kind).replace("int compare(", f"int compare_{kind}(")
        lines.append(text)
    lines += ["int main(void)", "{", "    int wrong = 0;", *_outputs(plan, outputs)]
    members = ", ".join(f"input_{k}" for k in range(len(inputs))) or "NULL"
    results = ", ".join(f"output_{k}" for k in range(len(outputs))) or "NULL"
    lines += [
        f"    const {name}_inputs inputs = {{{members}}};",
        f"    const {name}_outputs outputs = {{{results}}};",
        f"    const int check = {name}_check();",
        "    if (check != 0) {",
        '        printf("check %d failed\\n", check);',
        "        return 2;",
        "    }",
        # Run twice: no state may be left from the first time.
        "    for (int round = 0; round < 2; ++round) {",
        f"        if ({name}_run(&inputs, &outputs, arena) != 0) return 2;",
        "    }",
        *_comparisons(outputs),
        "    return wrong;",
        "}",
        "",
    ]
    return "\n".join(lines)


def _outputs(plan: TreePlan, outputs: Sequence[Port]) -> Iterator[str]:
    for k, port in enumerate(outputs):
        kind = C_TYPES[port.spec.dtype]
        yield f"    static {kind} output_{k}[{port.macro}_ELEMENTS];"


def _comparisons(outputs: Sequence[Port]) -> Iterator[str]:
    for k, port in enumerate(outputs):
        if port.spec.varying:
            yield f"    for (long i = 0; i < (long){port.macro}_ELEMENTS; ++i) {{"
            yield f"        if (!counts_{k}[i]) output_{k}[i] = expected_{k}[i];"
            yield "    }"
        yield f"    wrong |= compare_{C_TYPES[port.spec.dtype]}({port.macro}_NAME, expected_{k},"
        yield f"        output_{k}, {port.macro}_ELEMENTS, {allowed_difference(port.spec, k)});"


def allowed_difference(spec: TensorSpec, output: int) -> str:
    """Return three numbers in C: the tolerance relative to the value, to the largest value, and
    absolute, with the leeway of the vectors."""
    tolerance = tolerance_for(spec)
    numbers = (0.0, 0.0, 0.0)
    if tolerance.steps is not None:
        usual = tolerance.leeway.allowed if tolerance.leeway else QUANTISED_STEPS
        numbers = (0.0, 0.0, float(usual))
    elif spec.dtype.startswith("float"):
        atol = tolerance.atol + tolerance.oracle_noise + ALL_ZERO_ATOL
        numbers = (tolerance.rtol, tolerance.of_max, atol)
    texts = [float_text(number, "float64") for number in numbers]
    return ", ".join(texts) + f" + leeway_{output}"
