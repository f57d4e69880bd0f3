"""NAME.h: the whole interface of a model in C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from edgekit.aot.arena import ALIGNMENT
from edgekit.aot.c_text import C_TYPES, float_text
from edgekit.aot.tree import Origin, Port, TreePlan, ports
from edgekit.base.quoting import c_comment, c_string


def header_text(plan: TreePlan) -> str:
    name, macros, program = plan.name, plan.macros, plan.program
    inputs, outputs = ports(plan)
    guard = f"EDGEKIT_{macros}_H"
    lines = [
        *banner(plan.origin, "the model's whole interface"),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {macros}_MODEL {c_string(plan.origin.model)}",
        f"#define {macros}_SHA256 {c_string(program.model_sha256)}",
        f"#define {macros}_ARENA_BYTES {max(plan.arena.bytes, ALIGNMENT)}",
        f"#define {macros}_ARENA_ALIGNMENT {ALIGNMENT}",
        f"#define {macros}_INPUTS {len(inputs)}",
        f"#define {macros}_OUTPUTS {len(outputs)}",
        f"#define {macros}_STEPS {len(program.steps)}",
        "",
        *_macros(plan, (*inputs, *outputs)),
        "/* Where the inputs are: NULL is for those that lie in the arena, at their OFFSET. */",
        *_struct(f"{name}_inputs", inputs, "const "),
        "/* Where the outputs go: NULL is for those that stay in the arena, at their OFFSET. */",
        *_struct(f"{name}_outputs", outputs, ""),
        "/* 0, or the number of the first check that this build fails. Call it once. */",
        f"int {name}_check(void);",
        "",
        f"/* One inference. The arena has {macros}_ARENA_BYTES bytes at a multiple of",
        f" * {macros}_ARENA_ALIGNMENT and is free for other things before and after. Inputs in it",
        " * are gone afterwards; nothing that is pointed to may overlap.",
        " * 0, or 1 + the first step that was given an index outside of its tensor: the nearest",
        f" * one inside was taken, and {name}_step_name names the indices. */",
        f"int {name}_run(const {name}_inputs *inputs, const {name}_outputs *outputs, void *arena);",
        "",
        "/* One step of it, from 0 on, all in their order: 0, 1 where there is none, or 2 where an",
        " * index was outside. */",
        f"int {name}_run_step(unsigned step, const {name}_inputs *inputs,",
        f"    const {name}_outputs *outputs, void *arena);",
        "",
        "/* What a step computes, NULL where there is none. */",
        f"const char *{name}_step_name(unsigned step);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def banner(origin: Origin, what: str) -> Iterator[str]:
    yield f"/* {c_comment(origin.model)}: {what}."
    yield f" * Made from {c_comment(origin.file)} by edgekit {c_comment(origin.edgekit)}"
    yield f" * for {c_comment(origin.cpu)}. Build the model again rather than edit this. */"


def _macros(plan: TreePlan, all_ports: Iterable[Port]) -> Iterator[str]:
    for port in all_ports:
        spec, macro = port.spec, port.macro
        buffer = plan.program.buffers[port.buffer]
        shape = ", ".join(str(extent) for extent in spec.shape) or "1"
        yield f"#define {macro}_NAME {c_string(spec.name)}"
        yield f"#define {macro}_DTYPE {c_string(spec.dtype)}"
        yield f"#define {macro}_BYTES {buffer.bytes}"
        yield f"#define {macro}_ELEMENTS {spec.elements}"
        yield f"#define {macro}_RANK {len(spec.shape)}"
        yield f"#define {macro}_SHAPE {{{shape}}}"
        if spec.quantization is not None and len(spec.quantization.scales) == 1:
            scale = float_text(spec.quantization.scales[0], "float32")
            yield f"#define {macro}_SCALE {scale}"
            yield f"#define {macro}_ZERO_POINT ({spec.quantization.zero_points[0]})"
        yield f"#define {macro}_OFFSET {plan.arena.buffers[port.buffer]}"
        yield ""


def _struct(name: str, members: Sequence[Port], qualifier: str) -> Iterator[str]:
    yield "typedef struct {"
    for port in members:
        shape = ", ".join(str(extent) for extent in port.spec.shape)
        yield f"    {qualifier}{C_TYPES[port.spec.dtype]} *{port.field}; /* [{shape}] */"
    if not members:
        yield f"    {qualifier}void *nothing;"
    yield f"}} {name};"
    yield ""
