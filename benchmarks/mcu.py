"""Microcontrollers: the MLPerf Tiny int8 models as C on emulated Cortex-M and RV32 processors.

    python -m benchmarks.mcu             # all four on every core; --model, --cpu for some
    python -m benchmarks.mcu --layers    # and each step: who wrote it, instructions, estimate
    python -m benchmarks.mcu --offload cmsis-nn
    python -m benchmarks.mcu --library-alone   # CMSIS-NN wherever it can, without our fast kernels
    python -m benchmarks.mcu --docs      # writes the table into docs/bare-metal.md

One inference, in instructions as QEMU counts them, which are not cycles: memory costs nothing, a
division as much as an addition. Flash is a program that does nothing but that inference: weights,
code, and what both take of the C library. Outputs are compared with LiteRT's reference kernels.
TensorFlow Lite Micro (August 2026, with CMSIS-NN of July 2026, release flags) was measured on the
same machines; its flash is a program's too, the model file included.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.doc_table import write_table
from benchmarks.model_zoo import MODELS, fetch
from edgekit.aot.compile import Compiled, compile_tree
from edgekit.aot.generators import generators, portable_generators
from edgekit.aot.job import TreeJob
from edgekit.aot.report import constant_bytes, operator_word
from edgekit.aot.tree import Origin
from edgekit.aot.write import write_tree
from edgekit.aot.write_project import include_folders, library_sources
from edgekit.backends.registry import load_kernel_backend
from edgekit.base.arrays import Array
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import Model, import_model, open_model
from edgekit.models.oracle import oracle_for
from edgekit.profiles.board import load_board

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import riscv32
from support.cortex_m import PROCESSORS, Ran, build_elf, run_elf

RV32 = "RV32"
FAMILY = "MLPerf Tiny "
BOARDS = {
    "M0": "microbit",
    "M3": "mps2-an385",
    "M4": "mps2-an386",
    "M7": "mps2-an500",
    "M33": "mps2-an505",
    "M55": "mps3-an547",
    "RV32": "qemu-riscv32",
}
"""A board with each core."""
MACHINES = {"M0": "m0plus"}
"""The tests' machine for a core, if it has another name: QEMU counts the M0+ like the M0."""
PEER: dict[str, tuple[dict[str, float], int, int]] = {
    "keyword_spotting": ({"M4": 7.72, "M7": 7.65, "M55": 1.82}, 22_944, 109_976),
    "image_classification": ({"M4": 29.87, "M7": 30.03, "M55": 4.91}, 54_996, 150_828),
    "visual_wake_words": ({"M4": 25.10, "M7": 24.52, "M55": 6.95}, 165_344, 390_392),
    "anomaly_detection": ({"M4": 0.68, "M7": 0.60, "M55": 0.17}, 5_616, 324_432),
}
"""TensorFlow Lite Micro: millions of instructions, arena and flash on M4. It was measured on three
cores."""
FLAGS = ("-std=gnu99", "-O3")
DOCS = Path(__file__).parent.parent / "docs" / "bare-metal.md"
MARK = "<!-- benchmarks/mcu.py writes from here -->\n"

_ALONE = """\
#include "m.h"
static unsigned char arena[M_ARENA_BYTES] __attribute__((aligned(M_ARENA_ALIGNMENT)));
int main(void)
{
    const m_inputs inputs = { 0 };
    const m_outputs outputs = { 0 };
    return m_check() + m_run(&inputs, &outputs, arena);
}
void reset(void)
{
    main();
}
"""


@dataclass(frozen=True)
class Layer:
    name: str
    operator: str
    maker: str
    instructions: int
    estimate: int | None


@dataclass(frozen=True)
class Row:
    model: str
    cpu: str
    instructions: int
    arena: int
    bound: int
    flash: int
    constants: int
    steps_apart: int
    layers: tuple[Layer, ...]


def measure(
    name: str,
    model: Model,
    oracle: dict[str, Array],
    cpu: str,
    offload: tuple[str, ...],
    library_alone: bool,
) -> Row:
    compiled = in_c(name, model, cpu, offload, library_alone)
    plan = compiled.plan
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_tree(plan, folder)
        inputs = reference_inputs(model.inputs, 0)
        (folder / "main.c").write_text(_program(compiled, [*inputs.values()]), encoding="utf-8")
        files = [folder / file for file in ("main.c", "m.c", *library_sources(plan))]
        includes = [folder / include for include in (".", *include_folders(plan))]
        ran = _run(cpu, files, folder, includes)
        flash = _flash(cpu, folder, files[1:], includes)
    outputs = re.findall(r"^out ([0-9a-f]*)$", ran.output, re.MULTILINE)
    apart = max(
        _apart(bytes.fromhex(text), oracle[spec.name])
        for text, spec in zip(outputs, model.outputs, strict=True)
    )
    layers = tuple(
        Layer(
            step.name,
            operator_word(step.operator),
            choice.kernel.maker,
            ran.instructions[f"s{index}"],
            choice.kernel.instructions,
        )
        for index, (step, choice) in enumerate(
            zip(plan.program.steps, compiled.choices, strict=True)
        )
    )
    return Row(
        name,
        cpu,
        ran.instructions["whole"],
        plan.arena.bytes,
        plan.arena.bound,
        flash,
        sum(constant_bytes(choice) for choice in compiled.choices),
        apart,
        layers,
    )


def in_c(
    name: str, model: Model, cpu: str, offload: tuple[str, ...], library_alone: bool
) -> Compiled:
    """Compile a model to C for the board with a core."""
    board = load_board(BOARDS[cpu])
    origin = Origin(name, f"{name}.tflite", "0", board.name, board.cpu.name)
    offers = generators([load_kernel_backend(name).generator({}) for name in offload])
    if library_alone:
        portable = {generator.name for generator in portable_generators()}
        offers = tuple(g for g in offers if g.name in {"cmsis-nn", *portable})
    return compile_tree(model, TreeJob("m", origin, board.cpu), offers)


def _run(cpu: str, files: Sequence[Path], folder: Path, includes: Sequence[Path]) -> Ran:
    if cpu == RV32:
        return riscv32.run_elf(riscv32.build_elf(files, folder, FLAGS, includes))
    elf = build_elf(machine_of(cpu), files, folder, FLAGS, includes)
    return run_elf(machine_of(cpu), elf, limit_s=300)


def machine_of(cpu: str) -> str:
    return MACHINES.get(cpu, cpu.lower())


def _program(compiled: Compiled, inputs: list[Array]) -> str:
    """A main() that runs the model as a whole and then step by step, and prints its outputs."""
    lines = ["#include <stdint.h>", "#include <stdio.h>", "#include <string.h>"]
    lines += ['#include "harness.h"', '#include "m.h"']
    lines += ["static uint8_t arena[M_ARENA_BYTES] __attribute__((aligned(M_ARENA_ALIGNMENT)));"]
    for index, array in enumerate(inputs):
        values = ",".join(map(str, np.ascontiguousarray(array).view(np.uint8).reshape(-1)))
        lines += [f"static const uint8_t in_{index}[] = {{{values}}};"]
    fill = " ".join(
        f"memcpy(arena + M_INPUT_{index}_OFFSET, in_{index}, sizeof in_{index});"
        for index in range(len(inputs))
    )
    lines += [f"static void fill(void) {{ {fill} }}", "int main(void)", "{"]
    lines += ["    const m_inputs inputs = { 0 };", "    const m_outputs outputs = { 0 };"]
    lines += ["    if (m_check()) { return 90; }", "    fill();", "    count_begin();"]
    lines += ["    m_run(&inputs, &outputs, arena);", '    count_end("whole");']
    for index in range(len(compiled.plan.program.results)):
        size = f"M_OUTPUT_{index}_BYTES"
        lines += ['    printf("out ");', f"    for (int i = 0; i < {size}; i++) {{"]
        lines += [f'        printf("%02x", arena[M_OUTPUT_{index}_OFFSET + i]);', "    }"]
        lines += ['    printf("\\n");']
    lines += ["    fill();"]
    for index in range(len(compiled.plan.program.steps)):
        lines += ["    count_begin();", f"    m_run_step({index}, &inputs, &outputs, arena);"]
        lines += [f'    count_end("s{index}");']
    return "\n".join([*lines, "    return 0;", "}", ""])


def _flash(cpu: str, folder: Path, files: Sequence[Path], includes: Sequence[Path]) -> int:
    main, elf = folder / "alone.c", folder / "alone.elf"
    main.write_text(_ALONE, encoding="utf-8")
    tools, own, alone = riscv32.COMPILER, riscv32.FLAGS, riscv32.MEMORY
    if cpu != RV32:
        tools, alone = "arm-none-eabi", ("--specs=nosys.specs",)
        own = ("-mthumb", *PROCESSORS[machine_of(cpu)].flags)
    command = [f"{tools}-gcc", *own, *FLAGS]
    command += ["-ffunction-sections", "-fdata-sections", *(f"-I{path}" for path in includes)]
    command += [str(main), *map(str, files), "-nostartfiles", *alone]
    command += ["-Wl,--gc-sections,-e,reset", "-lm", "-o", str(elf)]
    subprocess.run(command, check=True, capture_output=True)
    size = subprocess.run([f"{tools}-size", str(elf)], check=True, capture_output=True, text=True)
    text, data = size.stdout.splitlines()[1].split()[:2]
    return int(text) + int(data)


def _apart(raw: bytes, expected: Array) -> int:
    """Steps of an int8, or of 1/256 where the output is a float."""
    found = np.frombuffer(raw, expected.dtype).reshape(expected.shape).astype(np.float64)
    largest = float(np.max(np.abs(found - expected.astype(np.float64))))
    return round(largest * (1 if expected.dtype.kind == "i" else 256))


def table(rows: Sequence[Row]) -> Iterator[str]:
    head = (
        "",
        "CPU",
        "M instructions",
        "TFLM",
        "ratio",
        "arena",
        "TFLM",
        "flash",
        "of it constants",
    )
    yield f"| {' | '.join((*head, 'TFLM', 'LiteRT'))} |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        peer, arena, flash = PEER[row.model]
        millions = row.instructions / 1e6
        yield (
            f"| {row.model.replace('_', ' ')} | {row.cpu} | {millions:.3g} "
            f"| {_against(peer.get(row.cpu), millions)} | {row.arena:,} | {arena:,} "
            f"| {row.flash:,} | {row.constants:,} | {flash:,} | {row.steps_apart} apart |"
        )


def _against(peer: float | None, millions: float) -> str:
    return "| " if peer is None else f"{peer:.2f} | {peer / millions:.1f}×"


def layers(row: Row) -> Iterator[str]:
    yield f"\n{row.model} on {row.cpu}:"
    for layer in row.layers:
        guess = (
            "" if layer.estimate is None else f"{layer.estimate / max(1, layer.instructions):.2f}"
        )
        who = f"  {layer.name:40} {layer.operator:16} {layer.maker:14}"
        yield f"{who} {layer.instructions:>9} {guess}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", choices=PEER, action="append")
    parser.add_argument("--cpu", choices=BOARDS, action="append")
    parser.add_argument("--offload", action="append", default=[])
    parser.add_argument("--library-alone", action="store_true", help="CMSIS-NN, else portable C")
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--docs", action="store_true")
    given = parser.parse_args()
    rows: list[Row] = []
    library: list[Row] = []
    for name in given.model or PEER:
        file = fetch(next(model for model in MODELS if model.name == FAMILY + name))
        source = open_model(file)
        oracle = oracle_for(source)
        for cpu in given.cpu or BOARDS:
            ways = (False, True) if given.docs else (given.library_alone,)
            for alone in ways[:1] if cpu == RV32 else ways:  # CMSIS-NN is for Cortex-M
                model = import_model(source)
                outputs = oracle.run(reference_inputs(model.inputs, 0))
                offload = ("cmsis-nn",) if alone else tuple(given.offload)
                row = measure(name, model, outputs, cpu, offload, alone)
                (library if alone else rows).append(row)
                if given.layers:
                    print("\n".join(layers(row)), flush=True)
    text = "\n".join(table(rows))
    if library:
        text = f"{text}\n\nCMSIS-NN wherever it can, portable C elsewhere:\n\n"
        text += "\n".join(table(library))
    print(text.strip())
    if given.docs:
        write_table(DOCS, MARK, text)


if __name__ == "__main__":
    main()
