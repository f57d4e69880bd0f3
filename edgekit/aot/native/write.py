"""The sources of a program in machine code: the model's steps in C, and its weights as a blob."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from edgekit.aot.arena import ArenaPlan, places
from edgekit.aot.c_text import C_TYPES
from edgekit.aot.native.describe import described
from edgekit.aot.native.gpu_tables import GPU_SOURCE, GpuTables, on_gpu
from edgekit.aot.native.planned import PlannedBranch, PlannedLoop, PlannedSteps, Weights
from edgekit.aot.operators import CONTROL, CallKernel, CallRegion, Copy, HoldIndices
from edgekit.aot.program import Program, Step
from edgekit.base.arrays import numpy_dtype
from edgekit.base.files import storage_errors
from edgekit.base.quoting import c_comment, c_string
from edgekit.base.tensors import TensorSpec
from edgekit.base.varying import without_lengths
from edgekit.compiler.gpu.code import ALIGNMENT as GPU_ALIGNMENT
from edgekit.compiler.gpu.code import GpuCode
from edgekit.compiler.loops import LoopRule
from edgekit.compiler.objects import ALIGNMENT, PREFIX, Scratch
from edgekit.compiler.steps import CodeArena, CodeStep
from edgekit.cross.blob import BlobForm, write_blob
from edgekit.cross.link import Objects
from edgekit.profiles.architecture import architecture_of
from edgekit.profiles.cpu import Target

SOURCE = Path(__file__).parent / "source"
_WEIGHTS = "edgekit_weights"
_OPTIONS = ("-O1", "-fvisibility=hidden")
_PROGRAM = SOURCE / "program.c"


@dataclass(frozen=True)
class _System:
    """What the system of a program decides about its sources."""

    blob: BlobForm
    options: tuple[str, ...]
    libraries: tuple[str, ...]
    fixed: tuple[Path, ...]


_LINUX = _System(
    "elf",
    ("-Wl,--version-script=edgekit.map",),
    ("-lm", "-ldl", "-pthread"),
    tuple(SOURCE / f"{name}.c" for name in ("program", "no_gpu", "sizes", "threads", "tvm_call")),
)
_LINUX_WITH_GPU = {
    language: replace(
        _LINUX,
        fixed=tuple(
            SOURCE / f"{name}.c" for name in ("program", *own, "sizes", "threads", "tvm_call")
        ),
    )
    for language, own in {"opencl": ("opencl", "kernel_cache"), "cuda": ("cuda",)}.items()
}
_EXPORTED = (
    *("edgekit_model_info", "edgekit_create", "edgekit_destroy", "edgekit_input"),
    *("edgekit_output", "edgekit_run", "edgekit_run_step", "edgekit_error"),
)
_ENGINE = _System(
    "wasm",
    tuple(f"-Wl,--export={name}" for name in _EXPORTED),
    (),
    (_PROGRAM, SOURCE / "no_gpu.c", SOURCE / "one_thread.c"),
)
_SYSTEMS = (_LINUX, *_LINUX_WITH_GPU.values(), _ENGINE)


@dataclass(frozen=True)
class NativeProgram:
    """A program before the board's compiler has seen it. It passes between processes."""

    planned: PlannedSteps
    scratch: Mapping[str, Scratch]
    """What each kernel needs besides its operands."""
    machine_code: tuple[bytes, ...]
    """The kernels as object files."""
    operations: tuple[int | None, ...]
    """The additions and multiplications of each step; None if unknown."""
    gpu: GpuCode | None = None
    """The kernels that a GPU runs."""
    needs_runtime: ClassVar[bool] = False

    @property
    def program(self) -> Program:
        return self.planned.program

    @property
    def steps(self) -> tuple[CodeStep, ...]:
        return described(self.program, self.operations, self.gpu)

    @property
    def arena(self) -> ArenaPlan:
        return self.planned.arena

    @property
    def memory(self) -> CodeArena:
        """The arena with the place of each buffer; a loop's own buffers are its scratch."""
        scratch = [self._scratch(index) for index in range(len(self.program.steps))]
        program = self.program.placed()
        return CodeArena(self.arena.bytes, self.arena.bound, places(program, self.arena, scratch))

    def _scratch(self, index: int) -> int:
        """Return the bytes of a step's own memory."""
        what = self.program.steps[index].operator
        if index in self.planned.control:
            return self.planned.control[index].bytes
        if not isinstance(what, CallKernel):
            return 0
        if self.gpu is not None and what.kernel in self.gpu.kernels:
            return sum(self.gpu.kernels[what.kernel].scratch)
        return sum(self.scratch[what.kernel].buffers)

    def write(self, target: Target, folder: Path) -> Objects:
        """Write the sources and the kernels into the folder."""
        architecture = architecture_of(target.triple)
        in_engine = architecture is not None and architecture.in_engine
        on_linux = _LINUX if self.gpu is None else _LINUX_WITH_GPU[self.gpu.language]
        system = _ENGINE if in_engine else on_linux
        weights = Weights(ALIGNMENT if self.gpu is None else GPU_ALIGNMENT)
        text = "\n".join(_model(self, weights)) + "\n"
        sources = ["model.c"]
        with storage_errors("write the program", folder):
            for path in sorted(SOURCE.iterdir()):
                if not any(path in one.fixed for one in _SYSTEMS):
                    shutil.copyfile(path, folder / path.name)
            (folder / "model.c").write_text(text, encoding="ascii")
            for number, code in enumerate(self.machine_code):
                sources.append(f"kernels{number}.o")
                (folder / sources[-1]).write_bytes(code)
            if self.gpu is not None:
                (folder / f"{GPU_SOURCE}.bin").write_bytes(self.gpu.content)
                blob = f"{GPU_SOURCE}.bin"
                sources.append(write_blob(folder, GPU_SOURCE, blob, form=system.blob))
            if weights.content:
                (folder / f"{_WEIGHTS}.bin").write_bytes(weights.content)
                blob = f"{_WEIGHTS}.bin"
                sources.append(
                    write_blob(
                        folder, _WEIGHTS, blob, alignment=weights.alignment, form=system.blob
                    )
                )
        options = (*_OPTIONS, *system.options)
        return Objects(tuple(sources), options, system.libraries, system.fixed)


def _model(plan: NativeProgram, weights: Weights) -> Iterator[str]:
    yield "/* Written by edgekit: the steps of a model, in their order. */"
    yield "#include <string.h>"
    yield ""
    yield '#include "model.h"'
    if plan.gpu is not None:
        yield '#include "gpu.h"'
    yield ""
    yield f'extern const unsigned char {_WEIGHTS}[] __attribute__((visibility("hidden")));'
    yield from _prototypes(plan)
    yield ""
    yield from _tables(plan)
    start = "int edgekit_step" if plan.gpu is None else "static int run_step"
    head = f"{start}(edgekit_program *program, unsigned step, const void *const *in,"
    if plan.gpu is None:
        yield from _steps(plan, plan.planned, "", head, weights)
        return
    tables = GpuTables(plan.planned, plan.gpu, weights)
    yield from _steps(plan, plan.planned, "", head, weights, tables)
    yield from tables.lines()


def _steps(
    plan: NativeProgram,
    planned: PlannedSteps,
    path: str,
    head: str,
    weights: Weights,
    tables: GpuTables | None = None,
) -> Iterator[str]:
    """Yield the function that runs one of the steps, after those that it calls. `path` tells the
    functions of a loop's or branch's body from others. `tables` get the steps of a GPU."""
    program = planned.program
    for index, step in enumerate(program.steps):
        if isinstance(step.operator, HoldIndices):
            yield from _holding(f"{path}{index}", step.operator)
        control = planned.control.get(index)
        if isinstance(control, PlannedLoop):
            yield from _repeating(plan, control, f"{path}{index}", weights)
        elif control is not None:
            yield from _branching(plan, control, f"{path}{index}", weights)
    yield head
    yield "                 void *const *out, unsigned char *at) {"
    yield "  (void)program, (void)in, (void)out, (void)at;"
    yield "  switch (step) {"
    for index, step in enumerate(program.steps):
        layers = c_comment(", ".join(layer for layer in step.layers if layer) or step.name)
        yield f"    case {index}: /* {layers} */"
        launched = "" if tables is None else tables.launched(step)
        called = [launched] if launched else _called(planned, path, index, weights)
        yield from (f"      {line}" for line in called)
    yield "    default: return EDGEKIT_NO_SUCH_STEP;"
    yield "  }"
    yield "}"
    yield ""


def _body(plan: NativeProgram, body: PlannedSteps, path: str, weights: Weights) -> Iterator[str]:
    """Yield the functions of a list of steps, and `body_PATH`, which runs all of them."""
    head = f"static int step_{path}(edgekit_program *program, unsigned step, const void *const *in,"
    yield from _steps(plan, body, f"{path}_", head, weights)
    yield f"static int body_{path}(edgekit_program *program, const void *const *in,"
    yield "                   void *const *out, unsigned char *at) {"
    yield f"  for (unsigned step = 0; step < {len(body.program.steps)}; ++step) {{"
    yield f"    const int status = step_{path}(program, step, in, out, at);"
    yield "    if (status != EDGEKIT_OK) return status;"
    yield "  }"
    yield "  return EDGEKIT_OK;"
    yield "}"
    yield ""


def _control_head(path: str) -> Iterator[str]:
    yield f"static int control_{path}(edgekit_program *program, const unsigned char *const *in,"
    yield "                   unsigned char *const *out, unsigned char *at) {"


def _branching(
    plan: NativeProgram, branch: PlannedBranch, path: str, weights: Weights
) -> Iterator[str]:
    """Yield a function that runs one of two bodies."""
    names = [f"{path}_{word}" for word in ("then", "else")]
    for name, body in zip(names, branch.bodies, strict=True):
        yield from _body(plan, body, name, weights)
    yield from _control_head(path)
    yield "  const void *const *given = (const void *const *)in + 1;"
    yield "  void *const *made = (void *const *)out;"
    runs = [f"body_{name}(program, given, made, at)" for name in names]
    yield f"  return *in[0] ? {runs[0]} : {runs[1]};"
    yield "}"
    yield ""


def _repeating(
    plan: NativeProgram, loop: PlannedLoop, path: str, weights: Weights
) -> Iterator[str]:
    """Yield a function that runs a body with pointers for each iteration. An iteration writes the
    states to the outputs, the next one to the copies, and so on; where their number is known, the
    last one writes to the outputs."""
    rule, body = loop.rule, loop.steps.program
    yield from _body(plan, loop.steps, path, weights)
    given, made, before, after = [], [], [], []
    sizes = [body.buffers[buffer].bytes for buffer in (*range(len(body.inputs)), *body.results)]
    odd = 0 if rule.data_ends else (rule.times - 1) % 2
    """Iterations whose numbers have this remainder write to the outputs."""
    for k, (backwards, copied) in enumerate(zip(rule.sliced, loop.slices, strict=True)):
        place = f"in[{k}] + {_moved(rule, backwards)} * {sizes[k]}u"
        given.append(place if copied is None else f"at + {copied}")
        if copied is not None:
            before.append(f"memcpy(at + {copied}, {place}, {sizes[k]});")
    for k, copy in enumerate(loop.states):
        place = f"in[{len(rule.sliced) + k}]"
        given.append(f"(k == 0 ? {place} : k % 2 == {1 - odd} ? out[{k}] : at + {copy})")
        made.append(f"(k % 2 == {odd} ? out[{k}] : at + {copy})")
    given += [f"in[{k}]" for k in range(len(given), len(body.inputs))]
    for k, (backwards, copied) in enumerate(zip(rule.stacked, loop.pieces, strict=True)):
        size = sizes[len(body.inputs) + rule.states + k]
        place = f"out[{rule.states + k}] + {_moved(rule, backwards)} * {size}u"
        made.append(place if copied is None else f"at + {copied}")
        if copied is not None:
            after.append(f"memcpy({place}, at + {copied}, {size});")
    conditions = [] if rule.count is None else [f"k < {rule.count}"]
    yield from _control_head(path)
    yield "  size_t k = 0;"
    if rule.data_ends:
        yield f"  const unsigned char *goes_on = in[{len(rule.sliced)}];"
        conditions.append("*goes_on")
    yield f"  for (; {' && '.join(conditions)}; ++k) {{"
    yield from (f"    {line}" for line in before)
    yield f"    const void *const given[] = {{{', '.join(given) or 0}}};"
    yield f"    void *const made[] = {{{', '.join(made)}}};"
    yield f"    const int status = body_{path}(program, given, made, at);"
    yield "    if (status != EDGEKIT_OK) return status;"
    yield from (f"    {line}" for line in after)
    if rule.data_ends:
        yield "    goes_on = made[0];"
    yield "  }"
    if rule.data_ends:
        # Without an iteration the states are those before it.
        yield "  if (k % 2 == 0) {"
        for k, copy in enumerate(loop.states):
            place, size = f"in[{len(rule.sliced) + k}]", sizes[len(body.inputs) + k]
            yield f"    memcpy(out[{k}], k == 0 ? {place} : at + {copy}, {size});"
        yield "  }"
    yield "  return EDGEKIT_OK;"
    yield "}"
    yield ""


def _moved(rule: LoopRule, backwards: bool) -> str:
    return f"({rule.times - 1} - k)" if backwards else "k"


def _prototypes(plan: NativeProgram) -> Iterator[str]:
    counts: dict[str, int] = {}
    regions: dict[str, None] = {}
    for step in _all_steps(plan.program):
        what: Any = step.operator
        if isinstance(what, CallKernel) and what.kernel in plan.scratch:
            extra = len(plan.scratch[what.kernel].buffers)
            counts[what.kernel] = len(what.operands) + len(step.outputs) + extra
        elif isinstance(what, CallRegion):
            regions[what.symbol] = None
    for kernel, count in counts.items():
        yield f"int {PREFIX}{kernel}({', '.join(['const void *'] * count)});"
    for symbol in regions:
        arguments = "const void *const *, void *const *, int, char *, size_t"
        name = f"edgekit_region_{symbol}"
        if plan.gpu is not None and symbol in plan.gpu.regions:
            name = on_gpu(symbol)
        yield f"int {name}({arguments});"


def _all_steps(program: Program) -> Iterator[Step]:
    for step in program.steps:
        yield step
        if isinstance(step.operator, CONTROL):
            for body in step.operator.bodies:
                yield from _all_steps(body)


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
    yield from _varying(program.inputs, program.outputs)
    most = max((one.each_thread for one in plan.scratch.values()), default=0)
    yield "const edgekit_info edgekit_model = {"
    yield f"  EDGEKIT_INTERFACE, {c_string(program.name)}, {len(program.inputs)},"
    yield f"  {len(program.outputs)}, {len(program.steps)}, inputs, outputs, steps,"
    own = without_lengths(program.inputs, program.outputs)
    yield f"  {plan.planned.bytes}, {most}, {len(own[0])}, {len(own[1])},"
    yield f"  {sum(len(spec.varying) for specs in own for spec in specs)}, varying}};"
    yield ""


def _varying(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Iterator[str]:
    """Yield the table of the dimensions whose sizes vary."""
    lengths = {spec.name: (0, place) for place, spec in enumerate(inputs)}
    for place, spec in enumerate(outputs):
        lengths.setdefault(spec.name, (1, place))
    yield "static const edgekit_varying varying[] = {"
    for is_output, specs in enumerate((inputs, outputs)):
        for place, spec in enumerate(specs):
            for one in spec.varying:
                fields = (is_output, place, one.dimension, one.smallest, *lengths[one.length])
                yield f"  {{{', '.join(map(str, fields))}}},"
    yield "  {0, 0, 0, 0, 0, 0}};"


def _bytes_of(spec: TensorSpec) -> int:
    return spec.elements * numpy_dtype(spec.dtype).itemsize


def _called(planned: PlannedSteps, path: str, index: int, weights: Weights) -> Iterator[str]:
    step = planned.program.steps[index]
    what: Any = step.operator
    outputs = [_at(planned, buffer) for buffer in step.outputs]
    if isinstance(what, HoldIndices):
        yield f"return hold_{path}{index}(program, {_at(planned, step.inputs[0])}, {outputs[0]});"
        return
    operands = [
        _at(planned, step.inputs[operand])
        if isinstance(operand, int)
        else f"{_WEIGHTS} + {weights.place(operand.array)}"
        for operand in what.operands
    ]
    if isinstance(what, Copy):
        size = planned.program.buffers[step.outputs[0]].bytes
        yield f"memcpy({outputs[0]}, {operands[0]}, {size});"
        yield "return EDGEKIT_OK;"
    elif isinstance(what, CallKernel):
        scratch = [f"at + {offset}" for offset in planned.scratch_at[index]]
        yield f"return {PREFIX}{what.kernel}({', '.join([*operands, *outputs, *scratch])});"
    elif isinstance(what, CONTROL):
        (offset,) = planned.scratch_at[index] or (0,)
        yield f"{{ const unsigned char *const given[] = {{{', '.join(operands)}}};"
        yield f"  unsigned char *const made[] = {{{', '.join(outputs)}}};"
        yield f"  return control_{path}{index}(program, given, made, at + {offset}); }}"
    else:
        yield f"{{ const void *const given[] = {{{', '.join(operands)}}};"
        yield f"  void *const made[] = {{{', '.join(outputs)}}};"
        yield f"  return edgekit_run_region(program, edgekit_region_{what.symbol}, given, made); }}"


def _at(planned: PlannedSteps, buffer: int) -> str:
    program = planned.program
    if buffer < len(program.inputs):
        return f"in[{buffer}]"
    if buffer in program.results:
        return f"out[{program.results.index(buffer)}]"
    return f"at + {planned.arena.buffers[buffer]}"


def _holding(name: str, what: HoldIndices) -> Iterator[str]:
    extents = ", ".join(map(str, what.extents))
    given, result = C_TYPES[what.given], C_TYPES[what.result]
    yield f"static int hold_{name}(edgekit_program *program, const void *given, void *made) {{"
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
