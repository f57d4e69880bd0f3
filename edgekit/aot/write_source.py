"""NAME.c and NAME_weights.h: a function for each step, and the model as the list of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from edgekit.aot.c_text import C_TYPES, values_text
from edgekit.aot.kernel import Kernel
from edgekit.aot.program import Buffer
from edgekit.aot.tree import Port, TreePlan, ports
from edgekit.aot.write_header import banner
from edgekit.base.quoting import c_comment, c_string

_ALIGNED = """\
#ifndef EDGEKIT_ALIGNED
#if defined(__GNUC__) || defined(__clang__)
#define EDGEKIT_ALIGNED(bytes) __attribute__((aligned(bytes)))
#else
#define EDGEKIT_ALIGNED(bytes)
#endif
#endif
"""
_STEP = """\
/* A step stays its own function, for debuggers and so that its stack ends with it. */
#if defined(__GNUC__) || defined(__clang__)
#define EDGEKIT_STEP __attribute__((noinline)) static
#else
#define EDGEKIT_STEP static
#endif
"""
_FEATURES = {"<arm_acle.h>": "__ARM_FEATURE_DSP", "<arm_mve.h>": "__ARM_FEATURE_MVE"}
"""The macro that a compiler defines if it supports what these headers declare."""
_RESTRICT = """\
#ifdef __cplusplus
#define restrict __restrict
#endif
"""


def weights_text(plan: TreePlan) -> str:
    guard = f"EDGEKIT_{plan.macros}_WEIGHTS_H"
    lines = [
        *banner(plan.origin, "what it has learnt"),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <math.h>",
        "#include <stdint.h>",
        "",
        _ALIGNED,
    ]
    for step, kernel in zip(plan.program.steps, plan.kernels, strict=True):
        for constant in kernel.constants:
            dtype = str(constant.array.dtype)
            shape = ", ".join(str(extent) for extent in constant.array.shape)
            declared = f"{C_TYPES[dtype]} {step.name}_{constant.name}[{constant.array.size}]"
            lines.append(f"/* [{shape}] */")
            lines.append(f"static const {declared} EDGEKIT_ALIGNED({constant.alignment}) = {{")
            lines += [*values_text(constant.array), "};", ""]
    lines += ["#endif", ""]
    return "\n".join(lines)


def source_text(plan: TreePlan) -> str:
    kernels, program, name = plan.kernels, plan.program, plan.name
    headers = {_bracketed(header) for kernel in kernels for header in kernel.headers}
    system = sorted({"<stddef.h>", "<stdint.h>", "<string.h>", *headers} - _quoted(headers))
    lines = [
        *banner(plan.origin, "its steps, in their order"),
        f'#include "{name}.h"',
        "",
        *_demanded(plan, headers),
        *(f"#include {header}" for header in (*system, *sorted(_quoted(headers)))),
        "",
        f'#include "{name}_weights.h"',
        "",
        _RESTRICT,
        _STEP,
    ]
    lines += needed_helpers(kernels)
    for step, kernel in zip(program.steps, kernels, strict=True):
        layers = c_comment(", ".join(layer for layer in step.layers if layer) or step.name)
        note = c_comment(f" ({kernel.note})" if kernel.note else "")
        kind = "int" if kernel.tells else "void"
        head, marked = (f"{mark} {kind} {step.name}(" for mark in ("static", "EDGEKIT_STEP"))
        source = kernel.source.replace(head, marked, 1).rstrip("\n")
        lines += [f"/* {layers}: by {kernel.maker}{note} */", source, ""]
    lines += _checks(plan)
    lines += _arena_map(plan)
    lines += _run_step(plan)
    arguments = f"const {name}_inputs *inputs, const {name}_outputs *outputs, void *arena"
    tells = any(kernel.tells for kernel in kernels)
    each = f"{name}_run_step(step, inputs, outputs, arena)"
    lines += [
        f"int {name}_run({arguments})",
        "{",
        *(["    int status = 0;"] if tells else []),
        f"    for (unsigned step = 0; step < {len(program.steps)}u; ++step) {{",
        f"        if ({each} != 0 && status == 0) status = (int)step + 1;"
        if tells
        else f"        (void){each};",
        "    }",
        f"    return {'status' if tells else '0'};",
        "}",
        "",
        f"const char *{name}_step_name(unsigned step)",
        "{",
        "    switch (step) {",
    ]
    for index, step in enumerate(program.steps):
        lines.append(f"    case {index}: return {c_string(step.name)};")
    lines += ["    default: return NULL;", "    }", "}", ""]
    return "\n".join(lines)


def needed_helpers(kernels: Sequence[Kernel]) -> list[str]:
    """Return the helpers in order, without those that have no caller: clang warns of them."""
    helpers = list(dict.fromkeys(helper for kernel in kernels for helper in kernel.helpers))
    while True:
        text = "\n".join((*helpers, *(kernel.source for kernel in kernels)))
        words = Counter(re.findall(r"\w+", text))
        needed = [
            helper
            for helper in helpers
            if not (names := _CALLED.findall(helper))
            or any(words[name] > len(re.findall(rf"\b{name}\b", helper)) for name in names)
        ]
        if len(needed) == len(helpers):
            return needed
        helpers = needed


_CALLED = re.compile(r"^(?:static inline [^;{(]*?\b|#define )(\w+)\(", re.MULTILINE)
"""Functions, and macros with arguments."""


def _bracketed(header: str) -> str:
    return header if header[0] in '<"' else f"<{header}>"


def _quoted(headers: set[str]) -> set[str]:
    return {header for header in headers if header.startswith('"')}


def _demanded(plan: TreePlan, headers: set[str]) -> Iterator[str]:
    """Yield an error for compilation for another CPU, before the compiler's own."""
    demanded = [feature for header, feature in _FEATURES.items() if header in headers]
    if demanded:
        message = f"this is for {plan.origin.cpu}: compile it with the flags in README.md"
        yield "#if " + " || ".join(f"!defined({feature})" for feature in demanded)
        yield f"#error {c_string(message)}"
        yield "#endif"
        yield ""


def _checks(plan: TreePlan) -> Iterator[str]:
    yield f"int {plan.name}_check(void)"
    yield "{"
    number = 0
    for kernel in plan.kernels:
        for check in kernel.checks:
            number += 1
            yield f"    if (!({check})) return {number};"
    yield "    return 0;"
    yield "}"
    yield ""


def _arena_map(plan: TreePlan) -> Iterator[str]:
    yield "/* The offsets of all buffers in the arena. */"
    for buffer, offset in zip(plan.program.buffers, plan.arena.buffers, strict=True):
        shape = ", ".join(str(extent) for extent in buffer.shape)
        yield f"#define AT_{buffer.name} {offset} /* {buffer.dtype} [{shape}] */"
    for step, place in zip(plan.program.steps, plan.arena.scratch, strict=True):
        if place is not None:
            yield f"#define SCRATCH_{step.name} {place}"
    yield ""


def _run_step(plan: TreePlan) -> Iterator[str]:
    name, program = plan.name, plan.program
    inputs, outputs = ports(plan)
    local = {
        **{port.buffer: f"in{k}" for k, port in enumerate(inputs)},
        **{port.buffer: f"out{k}" for k, port in enumerate(outputs)},
    }
    yield f"int {name}_run_step(unsigned step, const {name}_inputs *inputs,"
    yield f"    const {name}_outputs *outputs, void *arena)"
    yield "{"
    yield "    unsigned char *const at = (unsigned char *)arena;"
    yield from _resolved(plan, inputs, "in", "inputs", "const ")
    yield from _resolved(plan, outputs, "out", "outputs", "")
    yield "    (void)at;"
    for members, word in ((inputs, "in"), (outputs, "out")):
        for k in range(len(members)):
            yield f"    (void){word}{k};"
        if not members:
            yield f"    (void){word}puts;"
    yield ""
    yield "    switch (step) {"
    for index, (step, kernel) in enumerate(zip(program.steps, plan.kernels, strict=True)):
        arguments = [_pointer(program.buffers, k, local, "const ") for k in step.inputs]
        arguments += [_pointer(program.buffers, k, local, "") for k in step.outputs]
        if kernel.scratch:
            arguments.append(f"at + SCRATCH_{step.name}")
        yield f"    case {index}:"
        yield f"        {'return ' if kernel.tells else ''}{step.name}("
        for argument in arguments[:-1]:
            yield f"            {argument},"
        yield f"            {arguments[-1]});"
        if not kernel.tells:
            yield "        return 0;"
    yield "    default:"
    yield "        return 1;"
    yield "    }"
    yield "}"
    yield ""


def _resolved(
    plan: TreePlan, members: Sequence[Port], word: str, struct: str, qualifier: str
) -> Iterator[str]:
    for k, port in enumerate(members):
        kind = f"{qualifier}{C_TYPES[port.spec.dtype]} *"
        buffer = plan.program.buffers[port.buffer].name
        given = f"{struct}->{port.field}"
        yield f"    {kind}const {word}{k} = {given} != NULL"
        yield f"        ? {given} : ({kind})(void *)(at + AT_{buffer});"


def _pointer(buffers: Sequence[Buffer], index: int, local: dict[int, str], qualifier: str) -> str:
    if index in local:
        return local[index]
    buffer = buffers[index]
    return f"({qualifier}{C_TYPES[buffer.dtype]} *)(void *)(at + AT_{buffer.name})"
