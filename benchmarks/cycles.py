"""Cycles of microcontrollers, estimated from the instructions that QEMU executes.

    python -m benchmarks.cycles                        # MLPerf Tiny on every core; prints
    python -m benchmarks.cycles --model keyword_spotting --core M4
    python -m benchmarks.cycles --docs                 # writes the tables of docs/cycles.md

A plugin of QEMU (`qemu_blocks.c`) counts how often each block of instructions runs in one
inference. The cycles of a block are those of llvm-mca 19 with the pipeline that LLVM knows of the
core, repeated until it is steady; Cortex-M0+, which LLVM has no pipeline of, has the table of its
reference manual. A taken branch adds what `CORES` says. Memory answers at once: neither wait states
of the flash nor misses of a cache are part of it.

The error is measured: code of CMSIS-NN runs through the same estimate and is compared with the
cycles that were published for TensorFlow Lite Micro with CMSIS-NN on a board.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.doc_table import write_table
from benchmarks.mcu import FAMILY, FLAGS, in_c, machine_of
from benchmarks.model_zoo import MODELS, fetch
from edgekit.aot.write import write_tree
from edgekit.aot.write_project import include_folders, library_sources
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import import_model, open_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.cortex_m import build_elf, run_elf

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs" / "cycles.md"
MARK = "<!-- benchmarks/cycles.py writes from here -->\n"
MCA, OBJDUMP = "llvm-mca-19", "llvm-objdump-19"
TOOLS = MCA, OBJDUMP, "arm-none-eabi-gcc", "qemu-system-arm", "cc"
TRIPLE = "thumbv8.1m.main-none-eabi"
TIMES = 50
"""How often llvm-mca repeats a block."""
COVERED = 0.999
"""The share of the instructions whose blocks are looked at; the rest takes as long on average."""

Block = tuple[str, ...]
"""The instructions that run from an entry to the next branch."""


@dataclass(frozen=True)
class Core:
    runs: str
    """The core that QEMU runs the code of, by its name in `benchmarks.mcu`."""
    pipeline: str | None
    """The pipeline by LLVM's name; None for the table of Cortex-M0+."""
    taken: float
    """The cycles that a taken branch adds."""
    best: tuple[float, float, float, float]
    """The best published results of a closed division of MLPerf Tiny, in million cycles."""


MODELS_OF_MLPERF = (
    "keyword_spotting",
    "image_classification",
    "visual_wake_words",
    "anomaly_detection",
)
CORES = {
    "M0+": Core("M0", None, 0.0, (30.4, 97.4, 90.5, 2.62)),
    "M4": Core("M4", "cortex-m4", 2.0, (5.18, 19.8, 10.7, 0.486)),
    "M33": Core("M33", "cortex-m33", 2.0, (4.64, 16.7, 9.48, 0.494)),
    "M7": Core("M7", "cortex-m7", 0.0, (3.17, 11.4, 6.67, 0.303)),
    "M85": Core("M55", "cortex-m85", 0.0, (1.66, 4.07, 6.43, 0.255)),
}
PUBLISHED = {
    "keyword_spotting": 9.24,
    "image_classification": 34.3,
    "anomaly_detection": 0.978,
}
"""Million cycles of TensorFlow Lite Micro with CMSIS-NN on a NuMaker-M467HJ, a Cortex-M4 (Nuvoton,
MLPerf Tiny 1.1, closed division)."""


def executed(name: str, cpu: str, folder: Path, library: bool) -> Counter[Block]:
    """Return how often each block runs in one inference: that of two less that of one."""
    model = import_model(open_model(fetch(next(m for m in MODELS if m.name == FAMILY + name))))
    tree = in_c(name, model, cpu, ("cmsis-nn",) if library else (), library)
    write_tree(tree.plan, folder)
    inputs = [*reference_inputs(model.inputs, 0).values()]
    files = [folder / file for file in ("main.c", "m.c", *library_sources(tree.plan))]
    includes = [folder / include for include in (".", *include_folders(tree.plan))]
    counts = []
    for times in (1, 2):
        (folder / "main.c").write_text(_main(inputs, times), encoding="utf-8")
        machine = machine_of(cpu)
        elf = build_elf(machine, files, folder, FLAGS, includes)
        counts.append(_counted(machine, elf, folder))
    counts[1].subtract(counts[0])
    return Counter({block: runs for block, runs in counts[1].items() if runs > 0})


def _main(inputs: Sequence[object], times: int) -> str:
    sizes = [str(getattr(array, "nbytes", 0)) for array in inputs]
    fill = "".join(f"memset(arena + M_INPUT_{i}_OFFSET, 3, {n});" for i, n in enumerate(sizes))
    run = f"{fill} m_run(&inputs, &outputs, arena);"
    return (
        '#include <string.h>\n#include "harness.h"\n#include "m.h"\n'
        "static unsigned char arena[M_ARENA_BYTES]"
        " __attribute__((aligned(M_ARENA_ALIGNMENT)));\n"
        "int main(void)\n{\n    const m_inputs inputs = { 0 };\n"
        "    const m_outputs outputs = { 0 };\n    if (m_check()) { return 90; }\n"
        f"    for (volatile int i = 0; i < {times}; i++) {{ {run} }}\n    return 0;\n}}\n"
    )


def _counted(machine: str, elf: Path, folder: Path) -> Counter[Block]:
    plugin, counts = folder / "blocks.so", folder / "blocks.txt"
    if not plugin.exists():
        source = str(HERE / "qemu_blocks.c")
        command = ["cc", "-O2", "-shared", "-fPIC", source, "-o", str(plugin)]
        subprocess.run(command, check=True)
    run_elf(machine, elf, limit_s=300, more=("-plugin", f"{plugin},to={counts}"))
    instructions = _disassembled(elf)
    addresses = sorted(instructions)
    found: Counter[Block] = Counter()
    for line in counts.read_text(encoding="ascii").splitlines():
        address, length, runs = line.split()
        start = bisect(addresses, int(address, 16)) - 1
        if start >= 0 and addresses[start] == int(address, 16):
            block = addresses[start : start + int(length)]
            found[tuple(instructions[one] for one in block)] += int(runs)
    return found


def _disassembled(elf: Path) -> Mapping[int, str]:
    """Return the instruction at each address, as LLVM reads it: targets of branches are gone."""
    command = [OBJDUMP, "-d", "--no-show-raw-insn", f"--triple={TRIPLE}"]
    command += ["--mattr=+mve.fp,+fp64,+dsp", str(elf)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ *([0-9a-f]+):\s+([^@\n]*)", text, re.MULTILINE)
    return {
        int(address, 16): re.sub(r"(\b0x[0-9a-f]+ )?<.*", ".", instruction.strip())
        for address, instruction in found
    }


_BRANCH = re.compile(r"(b|bl|bx|blx|b[a-z]{2}|cbn?z|le|letp|tb[bh])\b|pop\b.*\bpc\b|ldm.*\bpc\b")
_MOVES = re.compile(r"(ldm|stm|push|pop)\w*\s.*\{([^}]*)\}")


def cycles(blocks: Counter[Block], core: Core) -> tuple[float, float]:
    """Estimate the cycles of an inference; return them with the share of instructions that the
    pipeline does not know."""
    total = sum(len(block) * runs for block, runs in blocks.items())
    largest = sorted(blocks, key=lambda block: -len(block) * blocks[block])
    chosen: list[Block] = []
    covered = 0
    for block in largest:
        if covered >= COVERED * total:
            break
        chosen.append(block)
        covered += len(block) * blocks[block]
    lasts = _by_table(chosen) if core.pipeline is None else _by_pipeline(chosen, core.pipeline)
    spent = 0.0
    unknown = 0
    for block, (each, left_out) in zip(chosen, lasts, strict=True):
        penalty = core.taken if _BRANCH.match(block[-1]) else 0.0
        spent += (each + penalty) * blocks[block]
        unknown += left_out * blocks[block]
    return spent * total / covered, unknown / total


def _by_table(blocks: Sequence[Block]) -> list[tuple[float, int]]:
    """Return the cycles of blocks on Cortex-M0+, by its reference manual (DDI 0484)."""
    return [(sum(map(_on_m0plus, block)), 0) for block in blocks]


def _on_m0plus(instruction: str) -> int:
    name = instruction.split()[0]
    moved = _MOVES.match(instruction)
    if moved:
        registers = len(moved.group(2).split(","))
        return registers + (3 if "pc" in moved.group(2) else 1)
    if name == "bl":
        return 3
    if _BRANCH.match(instruction) or name.startswith(("ldr", "str")):
        return 2
    return 1


def _by_pipeline(blocks: Sequence[Block], pipeline: str) -> list[tuple[float, int]]:
    """Return the cycles of blocks in LLVM's model of a pipeline, and how many instructions of each
    it does not know."""
    texts = [list(block) for block in blocks]
    unknown = [0] * len(blocks)
    while True:
        lines, place = [".syntax unified", ".thumb"], {}
        for index, block in enumerate(texts):
            lines.append(f"# LLVM-MCA-BEGIN {index}")
            for position, instruction in enumerate(block):
                lines.append(instruction)
                place[len(lines)] = index, position
            lines.append(f"# LLVM-MCA-END {index}")
        command = [MCA, f"-mtriple={TRIPLE}", f"-mcpu={pipeline}"]
        command += [f"-iterations={TIMES}", "--json", "--instruction-info=0"]
        command += ["-skip-unsupported-instructions=lack-sched"]
        text = "\n".join([*lines, ""])
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        wrong = {int(line) for line in re.findall(r"^<stdin>:(\d+):\d+: error", done.stderr, re.M)}
        if not wrong:
            break
        for line in wrong:
            index, position = place[line]
            texts[index][position] = "nop"
            unknown[index] += 1
    regions = json.loads(done.stdout)["CodeRegions"]
    each = {int(r["Name"]): r["SummaryView"]["TotalCycles"] / TIMES for r in regions}
    return [(each[index], unknown[index]) for index in range(len(blocks))]


@dataclass(frozen=True)
class Row:
    model: str
    core: str
    instructions: float
    cycles: float
    unknown: float
    best: float


def measure(name: str, core: str, library: bool = False) -> Row:
    known = CORES[core]
    with tempfile.TemporaryDirectory() as scratch:
        blocks = executed(name, known.runs, Path(scratch), library)
    spent, unknown = cycles(blocks, known)
    instructions = sum(len(block) * runs for block, runs in blocks.items())
    best = known.best[MODELS_OF_MLPERF.index(name)]
    return Row(name, core, instructions / 1e6, spent / 1e6, unknown, best)


def table(rows: Sequence[Row]) -> Iterator[str]:
    head = "model", "core", "M instructions", "estimated M cycles", "best published", "ratio"
    yield f"| {' | '.join(head)} | unknown |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {_words(row.model)} | {row.core} | {row.instructions:.3g} | {row.cycles:.3g} "
            f"| {row.best:.3g} | {row.cycles / row.best:.2f} | {row.unknown:.1%} |"
        )


def checked(rows: Sequence[Row]) -> Iterator[str]:
    yield "| model | M instructions | estimated M cycles | published for TFLM | ratio |"
    yield "|---|---|---|---|---|"
    for row in rows:
        there = PUBLISHED[row.model]
        yield (
            f"| {_words(row.model)} | {row.instructions:.3g} | {row.cycles:.3g} | {there:.3g} "
            f"| {row.cycles / there:.2f} |"
        )


def _words(model: str) -> str:
    return model.replace("_", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", choices=MODELS_OF_MLPERF, action="append")
    parser.add_argument("--core", choices=CORES, action="append")
    parser.add_argument("--docs", action="store_true")
    given = parser.parse_args()
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        parser.error(f"{', '.join(lacking)} not found: docs/cycles.md says what to install")
    models = given.model or MODELS_OF_MLPERF
    rows = [measure(name, core) for name in models for core in given.core or CORES]
    library = [measure(name, "M4", library=True) for name in models if name in PUBLISHED]
    text = "\n".join(table(rows))
    text += "\n\nThe check, CMSIS-NN on a Cortex-M4:\n\n" + "\n".join(checked(library))
    print(text)
    if given.docs:
        write_table(DOCS, MARK, text)


if __name__ == "__main__":
    main()
