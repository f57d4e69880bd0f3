"""The tables that tell a GPU's runner what to start: spans of memory, launches, what is lent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from edgekit.aot.native.planned import PlannedSteps, Weights
from edgekit.aot.operators import CallKernel, CallRegion, Weight
from edgekit.aot.program import Step
from edgekit.base.files import sha256_bytes
from edgekit.base.quoting import c_string
from edgekit.compiler.gpu.code import ALIGNMENT, GpuCode, Launch

GPU_SOURCE = "edgekit_gpu_source"
"""The symbol of the kernels' source."""


def on_gpu(symbol: str) -> str:
    """Return the function of a region that takes the GPU's addresses."""
    return f"edgekit_region_gpu_{symbol}"


@dataclass
class GpuTables:
    planned: PlannedSteps
    code: GpuCode
    weights: Weights
    _spans: dict[tuple[bool, int, int], int] = field(default_factory=dict)
    _launches: list[tuple[Launch, tuple[int, ...]]] = field(default_factory=list)

    def launched(self, step: Step) -> str:
        """Return the C that starts a step's kernels; empty if the CPU runs it."""
        what = step.operator
        if not self._is_on_gpu(step):
            return ""
        assert isinstance(what, CallKernel | CallRegion)
        operands = [
            self._weight(operand)
            if isinstance(operand, Weight)
            else self._buffer(step.inputs[operand])
            for operand in what.operands
        ]
        results = [self._buffer(buffer) for buffer in step.outputs]
        if isinstance(what, CallRegion):
            return (
                f"{{ const void *const given[] = {{{_addresses(operands)}}}; "
                f"void *const made[] = {{{_addresses(results)}}}; "
                f"return edgekit_run_region(program, {on_gpu(what.symbol)}, given, made); }}"
            )
        kernel = self.code.kernels[what.kernel]
        operands += results
        at = self.planned.scratch_at[self.planned.program.steps.index(step)]
        operands += [self._span(False, *pair) for pair in zip(at, kernel.scratch, strict=True)]
        first = len(self._launches)
        self._launches += [
            (launch, tuple(operands[place] for place in launch.arguments))
            for launch in kernel.launches
        ]
        return (
            f"return edgekit_gpu_launch(edgekit_gpu_of(program), {first}, {len(kernel.launches)});"
        )

    def lines(self) -> Iterator[str]:
        """Yield the tables, and the function that runs a step of either processor."""
        program = self.planned.program
        steps = [self._lent(step) for step in program.steps]
        ends = self._lending(program.results, range(len(program.inputs)))
        numbers = _Numbers()
        launches = [
            f"  {{{c_string(launch.function)}, {{{_threads(launch)}}}, "
            f"{{{', '.join(map(str, launch.threads))}}}, {len(spans)}, {numbers.at(spans)}}},"
            for launch, spans in self._launches
        ]
        lent = [f"  {_lending(numbers, *one)}," for one in steps]
        last = _lending(numbers, *ends)
        yield from numbers.lines()
        yield "static const edgekit_span spans[] = {"
        yield from (f"  {{{int(w)}, {at}u, {size}u}}," for w, at, size in self._spans)
        yield "  {0, 0, 0}};"
        yield "static const edgekit_launch launches[] = {"
        yield from launches
        yield "  {0}};"
        yield "static const edgekit_lending lent[] = {"
        yield from lent
        yield "  {0, 0, 0, 0}};"
        source = self.code.content
        size = len(self.weights.content)
        yield f'extern const char {GPU_SOURCE}[] __attribute__((visibility("hidden")));'
        yield "const edgekit_gpu_model edgekit_on_gpu = {"
        yield f"  {GPU_SOURCE}, {c_string(sha256_bytes(source))}, {len(source)},"
        yield f"  {'edgekit_weights' if size else '0'}, {size}, {self.planned.shared}, {ALIGNMENT},"
        yield f"  {len(self._spans)}, {len(self._launches)}, spans, launches, {last}}};"
        yield ""
        yield "int edgekit_step(edgekit_program *program, unsigned step, const void *const *in,"
        yield "                 void *const *out, unsigned char *at) {"
        yield f"  if (step >= {len(steps)}) return EDGEKIT_NO_SUCH_STEP;"
        yield "  int status = edgekit_gpu_lend(edgekit_gpu_of(program), &lent[step]);"
        yield "  if (status != EDGEKIT_OK) return status;"
        yield "  status = run_step(program, step, in, out, at);"
        yield "  const int back = edgekit_gpu_take_back(edgekit_gpu_of(program), &lent[step]);"
        yield "  return status == EDGEKIT_OK ? back : status;"
        yield "}"

    def _lent(self, step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if self._is_on_gpu(step):
            return (), ()
        return self._lending(step.inputs, step.outputs)

    def _is_on_gpu(self, step: Step) -> bool:
        what = step.operator
        if isinstance(what, CallRegion):
            return what.symbol in self.code.regions
        return isinstance(what, CallKernel) and what.kernel in self.code.kernels

    def _lending(
        self, read: Iterable[int], written: Iterable[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        reads = dict.fromkeys(self._buffer(buffer) for buffer in read)
        writes = dict.fromkeys(self._buffer(buffer) for buffer in written)
        return tuple(reads), tuple(writes)

    def _buffer(self, buffer: int) -> int:
        at = self.planned.arena.buffers[buffer]
        return self._span(False, at, self.planned.program.buffers[buffer].bytes)

    def _weight(self, weight: Weight) -> int:
        return self._span(True, self.weights.place(weight.array), weight.array.nbytes)

    def _span(self, is_weight: bool, at: int, size: int) -> int:
        # A GPU has no memory without bytes: an empty tensor is any byte.
        key = (is_weight, at, size) if size else (is_weight, 0, 1)
        return self._spans.setdefault(key, len(self._spans))


@dataclass
class _Numbers:
    """Lists of spans one after another."""

    _all: list[int] = field(default_factory=list)

    def at(self, numbers: Iterable[int]) -> str:
        start = len(self._all)
        self._all += numbers
        return f"numbers + {start}"

    def lines(self) -> Iterator[str]:
        yield f"static const unsigned numbers[] = {{{', '.join(map(str, [*self._all, 0]))}}};"


def _lending(numbers: _Numbers, reads: tuple[int, ...], writes: tuple[int, ...]) -> str:
    return f"{{{len(reads)}, {len(writes)}, {numbers.at(reads)}, {numbers.at(writes)}}}"


def _addresses(spans: Iterable[int]) -> str:
    each = (f"edgekit_gpu_address(edgekit_gpu_of(program), {span})" for span in spans)
    return ", ".join(each)


def _threads(launch: Launch) -> str:
    pairs = zip(launch.groups, launch.threads, strict=True)
    return ", ".join(str(groups * threads) for groups, threads in pairs)
