"""The two C files of a firmware that depend on board and models: config.h and models.c."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.aot.firmware.tree import CTree
from edgekit.profiles.board import Board
from edgekit.profiles.hardware import Firmware


def config_header(board: Board, firmware: Firmware, arena: int) -> str:
    numbers = {
        "clock": firmware.clock,
        "baud": board.transport.baud or 115200,
        "caches": int(firmware.caches),
        "arena_bytes": arena,
        **firmware.registers,
    }
    lines = [f"#define EK_{name.upper()} {value:#x}u" for name, value in numbers.items()]
    return "\n".join(["/* From the board's profile. */", *lines, ""])


def models_source(trees: Sequence[CTree]) -> str:
    """Return C with a table of all models, made of the macros of their headers."""
    parts = ["/* From the models' headers. */", '#include "models.h"', '#include "config.h"', ""]
    parts += [f'#include "{tree.name}.h"' for tree in trees]
    parts.append("")
    for tree in trees:
        parts.append(_wrappers(tree))
    parts.append("const ek_model ek_models[] = {")
    parts += [_entry(tree) for tree in trees]
    parts += ["};", f"const uint32_t ek_models_count = {len(trees)}u;"]
    parts.append(
        'uint8_t ek_arena[EK_ARENA_BYTES] __attribute__((section(".arena"), aligned(16)));'
    )
    return "\n".join([*parts, ""])


def _wrappers(tree: CTree) -> str:
    name = tree.name
    arguments = f"&({name}_inputs){{0}}, &({name}_outputs){{0}}, arena"
    return f"""\
{_tensors(tree, "input", "INPUT", tree.inputs)}
{_tensors(tree, "output", "OUTPUT", tree.outputs)}
static int ek_{name}_run(void *arena) {{
  return {name}_run({arguments});
}}
static int ek_{name}_step(unsigned step, void *arena) {{
  return {name}_run_step(step, {arguments});
}}
"""


def _tensors(tree: CTree, kind: str, word: str, count: int) -> str:
    macros = [f"{tree.macros}_{word}_{i}" for i in range(count)]
    scales = "".join(
        f"#ifndef {macro}_SCALE\n#define {macro}_SCALE 0\n#define {macro}_ZERO_POINT 0\n#endif\n"
        for macro in macros
    )
    columns = ("NAME", "DTYPE", "BYTES", "OFFSET", "SCALE", "ZERO_POINT")
    rows = "".join(
        f"    {{{', '.join(f'{macro}_{column}' for column in columns)}}},\n" for macro in macros
    )
    return f"{scales}static const ek_tensor ek_{tree.name}_{kind}[] = {{\n{rows}}};"


def _entry(tree: CTree) -> str:
    name, macros = tree.name, tree.macros
    return (
        f"    {{{macros}_MODEL, {macros}_SHA256, {macros}_ARENA_BYTES, {macros}_STEPS, "
        f"{tree.inputs}u, {tree.outputs}u,\n"
        f"     ek_{name}_input, ek_{name}_output, {name}_check, ek_{name}_run, ek_{name}_step, "
        f"{name}_step_name}},"
    )
