"""The files around the C: a build script, and a README for this model."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.aot.c_text import C_TYPES
from edgekit.aot.kernel import Library
from edgekit.aot.tree import Port, TreePlan, ports
from edgekit.base.quoting import c_comment, markdown_code, markdown_text
from edgekit.base.wording import counted, exact_size

HOST_FOLDER = "test/portable"
"""The model in C for any machine, where the main C is for one kind of CPU."""


def library_sources(plan: TreePlan) -> list[str]:
    return [
        f"lib/{library.name}/{path}"
        for library in plan.libraries
        for path in sorted(library.files)
        if path.endswith(".c")
    ]


def include_folders(plan: TreePlan) -> list[str]:
    return [
        f"lib/{library.name}/{folder}".rstrip("/.")
        for library in plan.libraries
        for folder in library.includes
    ]


def makefile_text(plan: TreePlan) -> str:
    name = plan.name
    sources = " ".join([f"{name}.c", *library_sources(plan)])
    includes = " ".join(f"-I{folder}" for folder in (".", *include_folders(plan)))
    return f"""\
# make: lib{name}.a. make test: run it on this host, and compare.
CC ?= cc
AR ?= ar
CFLAGS ?= -O3
STRICT = -std=gnu99 -Wall -Wextra -Wconversion
SOURCES = {sources}
OBJECTS = $(SOURCES:.c=.o)

lib{name}.a: $(OBJECTS)
\t$(AR) rcs $@ $(OBJECTS)

{name}.o: {name}.c {name}.h {name}_weights.h
\t$(CC) $(STRICT) $(CFLAGS) {includes} -c -o $@ $<

lib/%.o: lib/%.c
\t$(CC) -std=gnu99 $(CFLAGS) {includes} -c -o $@ $<

{_test_rule(plan, includes)}

test: test/test_{name}
\t./test/test_{name}

clean:
\trm -f $(OBJECTS) lib{name}.a test/test_{name}

.PHONY: test clean
"""


def _test_rule(plan: TreePlan, includes: str) -> str:
    name = plan.name
    if plan.host is None:
        return f"""\
test/test_{name}: test/test_{name}.c test/vectors.h lib{name}.a
\t$(CC) $(STRICT) $(CFLAGS) {includes} -o $@ $< lib{name}.a -lm"""
    return f"""\
# The C above is for {c_comment(plan.origin.cpu)}; this is the same model for any machine.
test/test_{name}: test/test_{name}.c test/vectors.h {HOST_FOLDER}/{name}.c
\t$(CC) $(STRICT) $(CFLAGS) -I{HOST_FOLDER} -o $@ $< {HOST_FOLDER}/{name}.c -lm"""


def cmake_text(plan: TreePlan) -> str:
    name = plan.name
    sources = "\n    ".join([f"{name}.c", *library_sources(plan)])
    includes = "\n".join(
        f"target_include_directories({name} PRIVATE {folder})" for folder in include_folders(plan)
    )
    return f"""\
# add_subdirectory() this folder and link with {name}.
cmake_minimum_required(VERSION 3.13)
project({name} C)

add_library({name} STATIC
    {sources})
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
{includes}
set_target_properties({name} PROPERTIES C_STANDARD 99 C_EXTENSIONS ON)
if(NOT CMAKE_BUILD_TYPE)
    target_compile_options({name} PRIVATE -O3)
endif()
target_link_libraries({name} PUBLIC m)

if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR AND NOT CMAKE_CROSSCOMPILING)
    enable_testing()
{_cmake_test(plan)}
    add_test(NAME {name} COMMAND test_{name})
endif()
"""


def _cmake_test(plan: TreePlan) -> str:
    name = plan.name
    if plan.host is None:
        return f"""\
    add_executable(test_{name} test/test_{name}.c)
    target_link_libraries(test_{name} PRIVATE {name})"""
    return f"""\
    add_executable(test_{name} EXCLUDE_FROM_ALL test/test_{name}.c {HOST_FOLDER}/{name}.c)
    target_include_directories(test_{name} BEFORE PRIVATE {HOST_FOLDER})
    target_link_libraries(test_{name} PRIVATE m)"""


def readme_text(plan: TreePlan) -> str:
    name, macros = plan.name, plan.macros
    inputs, outputs = ports(plan)
    weights = sum(c.array.nbytes for kernel in plan.kernels for c in kernel.constants)
    lines = [
        f"# {markdown_text(plan.origin.model)} in C",
        "",
        f"Made from {markdown_code(plan.origin.file)} (SHA-256 `{plan.program.model_sha256}`) by "
        f"edgekit {plan.origin.edgekit} for {markdown_text(plan.origin.cpu)}.",
        "",
        f"- `{name}.h` is the whole interface, for C99 and C++.",
        f"- `{name}.c` has a function for each of its {counted(len(plan.program.steps), 'step')}; "
        f"`{name}_weights.h` has {exact_size(weights)} of constants.",
        f"- It needs one arena of {exact_size(plan.arena.bytes)}, no other writable memory, "
        "and of the C library only `<string.h>` and `<math.h>`.",
        "",
        "```c",
        f'#include "{name}.h"',
        "",
        *_example(plan, inputs, outputs),
        "```",
        "",
        "A pointer that is NULL stands for the tensor's place in the arena, "
        f"`arena + {macros}_INPUT_0_OFFSET` and so on: fill it in place, and nothing is copied.",
        "A run overwrites the whole arena, the inputs too.",
        "",
        "## Inputs and outputs",
        "",
        "| | name | type | shape | bytes | in the arena at |",
        "|---|---|---|---|---|---|",
        *_rows(plan, inputs, "in"),
        *_rows(plan, outputs, "out"),
        "",
        "## Building it",
        "",
        "CMake: `add_subdirectory` of this folder, then link with "
        f"`{name}`. Make: `make CC=... CFLAGS=...` gives `lib{name}.a`. By hand: compile "
        + ", ".join(f"`{source}`" for source in (f"{name}.c", *library_sources(plan)))
        + ". Use `-O3`: the loops are written for it.",
        *_flags_note(plan),
        "",
        "`make test` runs the reference inputs on the host and compares the outputs with "
        "another runtime's results.",
        *_host_note(plan),
        "",
        *_licences(plan.libraries),
    ]
    return "\n".join(lines)


def _host_note(plan: TreePlan) -> Iterator[str]:
    if plan.host is not None:
        yield (
            f"The C next to this file uses instructions of {plan.origin.cpu}; the test "
            f"compiles the same model in `{HOST_FOLDER}`, for any machine."
        )


def _flags_note(plan: TreePlan) -> Iterator[str]:
    if plan.origin.flags:
        yield ""
        yield f"For {markdown_text(plan.origin.cpu)}, the board's compiler needs"
        yield ""
        yield f"    {' '.join(plan.origin.flags)}"


def _example(plan: TreePlan, inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> Iterator[str]:
    name, macros = plan.name, plan.macros
    yield f"static unsigned char arena[{macros}_ARENA_BYTES]"
    yield f"    __attribute__((aligned({macros}_ARENA_ALIGNMENT)));"
    for word, members in (("input", inputs), ("output", outputs)):
        for k, port in enumerate(members):
            yield f"static {C_TYPES[port.spec.dtype]} {word}_{k}[{port.macro}_ELEMENTS];"
    sources = ", ".join(f"input_{k}" for k in range(len(inputs))) or "NULL"
    results = ", ".join(f"output_{k}" for k in range(len(outputs))) or "NULL"
    yield ""
    yield "int infer(void)"
    yield "{"
    yield f"    const {name}_inputs in = {{{sources}}};"
    yield f"    const {name}_outputs out = {{{results}}};"
    yield f"    const int wrong = {name}_check();"
    yield f"    return wrong != 0 ? wrong : {name}_run(&in, &out, arena);"
    yield "}"


def _rows(plan: TreePlan, members: tuple[Port, ...], word: str) -> Iterator[str]:
    for port in members:
        spec, buffer = port.spec, plan.program.buffers[port.buffer]
        kind = spec.dtype
        if spec.quantization is not None and len(spec.quantization.scales) == 1:
            scale, zero = spec.quantization.scales[0], spec.quantization.zero_points[0]
            kind += f", real = {scale!r} * (stored - {zero})"
        shape = " x ".join(str(extent) for extent in spec.shape) or "one number"
        offset = plan.arena.buffers[port.buffer]
        field = markdown_code(port.field)
        yield f"| {word} | {field} | {kind} | {shape} | {buffer.bytes} | {offset} |"


def _licences(libraries: tuple[Library, ...]) -> Iterator[str]:
    yield "## Licences"
    yield ""
    yield "The C that edgekit wrote is yours, like the model it was made from."
    for library in libraries:
        yield (
            f"`lib/{library.name}` is {library.name} {library.version}, under "
            f"{library.license_name}: `LICENSES/{library.name}.txt`."
        )
    yield ""
