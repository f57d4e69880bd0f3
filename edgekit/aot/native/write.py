"""The sources of a program in machine code: the model's steps in C, and its weights as a blob."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from edgekit.aot.arena import ArenaPlan
from edgekit.aot.c_text import C_TYPES
from edgekit.aot.operators import CallKernel, CallRegion, Copy, HoldIndices
from edgekit.aot.program import Program, Step
from edgekit.base.arrays import numpy_dtype
from edgekit.base.files import storage_errors
from edgekit.base.quoting import c_comment, c_string
from edgekit.base.tensors import TensorSpec
from edgekit.compiler.objects import ALIGNMENT, PREFIX, Scratch
from edgekit.cross.blob import write_blob
from edgekit.cross.link import Objects
from edgekit.profiles.cpu import Target

SOURCE = Path(__file__).parent / "source"
_KERNELS = "kernels.o"
_WEIGHTS = "edgekit_weights"
_OPTIONS = ("-O1", "-fvisibility=hidden", "-Wl,--version-script=edgekit.map")
_FIXED = tuple(SOURCE / name for name in ("program.c", "threads.c", "tvm_call.c"))


@dataclass(frozen=True)
class NativeProgram:
    """A program before the board's compiler has seen it. It passes between processes."""

    program: Program
    arena: ArenaPlan
    scratch: Mapping[str, Scratch]
    """What each kernel needs besides its operands."""
    scratch_at: tuple[tuple[int, ...], ...]
    """The offset of each of a step's scratch buffers in the arena."""
    machine_code: bytes
    """The kernels as an object file; empty if there are none."""
    needs_runtime: ClassVar[bool] = False

    def write(self, target: Target, folder: Path) -> Objects:
        """Write the sources and the kernels into the folder."""
        del target
        weights = _Weights()
        text = "\n".join(_model(self, weights)) + "\n"
        sources = ["model.c"]
        with storage_errors("write the program", folder):
            for path in sorted(SOURCE.iterdir()):
                if path not in _FIXED:
                    shutil.copyfile(path, folder / path.name)
            (folder / "model.c").write_text(text, encoding="ascii")
            if self.machine_code:
                (folder / _KERNELS).write_bytes(self.machine_code)
                sources.append(_KERNELS)
            if weights.content:
                (folder / f"{_WEIGHTS}.bin").write_bytes(weights.content)
                sources.append(write_blob(folder, _WEIGHTS, f"{_WEIGHTS}.bin", alignment=ALIGNMENT))
        return Objects(tuple(sources), _OPTIONS, ("-lm", "-ldl", "-pthread"), _FIXED)


@dataclass
class _Weights:
    """Constants one after another, each once."""

    content: bytearray = field(default_factory=bytearray)
    offsets: dict[bytes, int] = field(default_factory=dict)

    def place(self, array: Any) -> int:
        data = np.ascontiguousarray(array).tobytes()
        if data not in self.offsets:
            self.content += bytes(-len(self.content) % ALIGNMENT)
            self.offsets[data] = len(self.content)
            self.content += data
        return self.offsets[data]


def _model(plan: NativeProgram, weights: _Weights) -> Iterator[str]:
    program = plan.program
    yield "/* Written by edgekit: the steps of a model, in their order. */"
    yield "#include <string.h>"
    yield ""
    yield '#include "model.h"'
    yield ""
    yield f'extern const unsigned char {_WEIGHTS}[] __attribute__((visibility("hidden")));'
    yield from _prototypes(plan)
    yield ""
    yield from _tables(plan)
    for index, step in enumerate(program.steps):
        if isinstance(step.operator, HoldIndices):
            yield from _holding(index, step.operator)
    yield "int edgekit_step(edgekit_program *program, unsigned step, const void *const *in,"
    yield "                 void *const *out, unsigned char *at) {"
    yield "  (void)program, (void)in, (void)out, (void)at;"
    yield "  switch (step) {"
    for index, step in enumerate(program.steps):
        layers = c_comment(", ".join(layer for layer in step.layers if layer) or step.name)
        yield f"    case {index}: /* {layers} */"
        yield from (f"      {line}" for line in _called(plan, index, step, weights))
    yield "    default: return EDGEKIT_NO_SUCH_STEP;"
    yield "  }"
    yield "}"


def _prototypes(plan: NativeProgram) -> Iterator[str]:
    counts: dict[str, int] = {}
    regions: dict[str, None] = {}
    for step in plan.program.steps:
        what: Any = step.operator
        if isinstance(what, CallKernel):
            extra = len(plan.scratch[what.kernel].buffers)
            counts[what.kernel] = len(what.operands) + len(step.outputs) + extra
        elif isinstance(what, CallRegion):
            regions[what.symbol] = None
    for kernel, count in counts.items():
        yield f"int {PREFIX}{kernel}({', '.join(['const void *'] * count)});"
    for symbol in regions:
        yield f"int edgekit_region_{symbol}(const void *const *, void *const *, char *, size_t);"


def _tables(plan: NativeProgram) -> Iterator[str]:
    program = plan.program
    ends = (
        ("input", program.inputs, range(len(program.inputs))),
        ("output", program.outputs, program.results),
    )
    for word, specs, _ in ends:
        for k, spec in enumerate(specs):
            extents = ", ".join(map(str, spec.shape)) or "0"
            yield f"static const int64_t {word}_shape_{k}[] = {{{extents}}};"
        yield f"static const edgekit_tensor {word}s[] = {{"
        for k, spec in enumerate(specs):
            yield (
                f"  {{{c_string(spec.name)}, {c_string(spec.dtype)}, {len(spec.shape)}, "
                f"{word}_shape_{k}, {_bytes_of(spec)}}},"
            )
        yield "  {0, 0, 0, 0, 0}};"
    for word, _, buffers in ends:
        offsets = ", ".join(str(plan.arena.buffers[buffer]) for buffer in buffers)
        yield f"const size_t edgekit_{word}_at[] = {{{offsets or 0}}};"
    yield "static const char *const steps[] = {"
    for step in program.steps:
        yield f"  {c_string(step.name)},"
    yield "  0};"
    most = max((one.each_thread for one in plan.scratch.values()), default=0)
    yield "const edgekit_info edgekit_model = {"
    yield f"  EDGEKIT_INTERFACE, {c_string(program.name)}, {len(program.inputs)},"
    yield f"  {len(program.outputs)}, {len(program.steps)}, inputs, outputs, steps,"
    yield f"  {plan.arena.bytes}, {most}}};"
    yield ""


def _bytes_of(spec: TensorSpec) -> int:
    return spec.elements * numpy_dtype(spec.dtype).itemsize


def _called(plan: NativeProgram, index: int, step: Step, weights: _Weights) -> Iterator[str]:
    what: Any = step.operator
    outputs = [_at(plan, buffer) for buffer in step.outputs]
    if isinstance(what, HoldIndices):
        yield f"return hold_{index}(program, {_at(plan, step.inputs[0])}, {outputs[0]});"
        return
    operands = [
        _at(plan, step.inputs[operand])
        if isinstance(operand, int)
        else f"{_WEIGHTS} + {weights.place(operand.array)}"
        for operand in what.operands
    ]
    if isinstance(what, Copy):
        size = plan.program.buffers[step.outputs[0]].bytes
        yield f"memcpy({outputs[0]}, {operands[0]}, {size});"
        yield "return EDGEKIT_OK;"
    elif isinstance(what, CallKernel):
        scratch = [f"at + {offset}" for offset in plan.scratch_at[index]]
        yield f"return {PREFIX}{what.kernel}({', '.join([*operands, *outputs, *scratch])});"
    else:
        yield f"{{ const void *const given[] = {{{', '.join(operands)}}};"
        yield f"  void *const made[] = {{{', '.join(outputs)}}};"
        yield f"  return edgekit_run_region(program, edgekit_region_{what.symbol}, given, made); }}"


def _at(plan: NativeProgram, buffer: int) -> str:
    program = plan.program
    if buffer < len(program.inputs):
        return f"in[{buffer}]"
    if buffer in program.results:
        return f"out[{program.results.index(buffer)}]"
    return f"at + {plan.arena.buffers[buffer]}"


def _holding(index: int, what: HoldIndices) -> Iterator[str]:
    extents = ", ".join(map(str, what.extents))
    given, result = C_TYPES[what.given], C_TYPES[what.result]
    yield f"static int hold_{index}(edgekit_program *program, const void *given, void *made) {{"
    yield f"  static const int64_t extents[] = {{{extents}}};"
    yield f"  const {given} *values = given;"
    yield f"  {result} *held = made;"
    yield f"  for (int64_t k = 0; k < {what.elements}; ++k) {{"
    yield f"    const int64_t extent = extents[k % {len(what.extents)}];"
    yield f"    const int64_t lowest = {'-extent' if what.counts_from_end else '0'};"
    yield "    const int64_t index = (int64_t)values[k];"
    yield "    if (index < lowest || index >= extent)"
    yield f"      return edgekit_index_outside(program, {c_string(what.tensor)}, index, lowest,"
    yield "                                   extent - 1);"
    yield f"    held[k] = ({result})(index < 0 ? index + extent : index);"
    yield "  }"
    yield "  return EDGEKIT_OK;"
    yield "}"
    yield ""
