"""Finds the runs of steps that an Ethos-U takes, and makes the kernel that starts each region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgekit.aot.kernel import NO_SUCH_WAY, Constant, Declined, Kernel, Library
from edgekit.aot.operators import NpuRegion
from edgekit.aot.program import Buffer, Program, Step
from edgekit.backends.ethos_u.configuration import Configuration
from edgekit.backends.ethos_u.network import WRITERS, NotForVela, network_of
from edgekit.backends.ethos_u.quantisation import Disagreement, quantisations
from edgekit.backends.ethos_u.region import Compiled, compile_region
from edgekit.base.wording import counted, size
from edgekit.profiles.cpu import Cpu

_SOURCE = Path(__file__).parent / "source"
_TWIN = ("edgekit_ethosu_registers.c", "edgekit_ethosu_twin.c", "edgekit_ethosu_twin.h")
_START = "edgekit_ethosu.c"


@dataclass(frozen=True)
class EthosUGenerator:
    """Makes regions of a program, and the C that starts each of them."""

    configuration: Configuration
    version: str
    refusals: dict[str, str] = field(default_factory=dict)
    """The reasons why steps were left to the CPU, by their names."""

    @property
    def name(self) -> str:
        return "ethos-u"

    def ways(self, step: Step, cpu: Cpu) -> tuple[str, ...]:
        del step, cpu
        return ()

    def offer(self, step: Step, cpu: Cpu, way: str = "") -> Kernel | Declined:
        if way:
            return NO_SUCH_WAY
        region = step.operator
        if isinstance(region, NpuRegion) and region.maker == self.name:
            return self._kernel(step, region.compiled)
        return Declined(self.refusals.get(step.name, "an Ethos-U has no such operator"))

    def libraries(self, kernels: Sequence[Kernel]) -> tuple[Library, ...]:
        """Return the starter, and the twin where kernels need it."""
        sources = {path for k in kernels if k.maker == self.name for path in k.library_sources}
        if not sources:
            return ()
        names = ("edgekit_ethosu.h", *sorted(sources))
        files = {name: (_SOURCE / name).read_text(encoding="utf-8") for name in names}
        words = "Part of edgekit, under edgekit's licence.\n"
        return (Library(self.name, self.version, files, (".",), "edgekit", words),)

    def with_regions(self, program: Program) -> Program:
        """Return the program with a step for each region that Vela compiles."""
        cutter = _Cutter(program, self.configuration)
        steps = [step for run in _runs(program.steps) for step in cutter.regions(run)]
        self.refusals.update(cutter.refusals)
        return _without_unused(replace(program, steps=tuple(steps)))

    def _kernel(self, step: Step, compiled: Compiled) -> Kernel:
        import numpy as np

        made, name = compiled.made, step.name
        arrays = [
            Constant("commands", np.frombuffer(made.commands, np.uint32), 16),
            Constant("constants", np.frombuffer(made.constants or bytes(16), np.uint8), 16),
        ]
        twin = ["NULL", "NULL"]
        sources = [_START]
        if compiled.decoded is not None:
            places = np.array(compiled.decoded.places, np.uint32)
            arrays += [Constant("decoded", compiled.decoded.weights), Constant("places", places)]
            twin = [f"{name}_decoded", f"{name}_places"]
            sources += _TWIN
        fields = [
            f"{name}_commands, sizeof {name}_commands",
            f"{name}_constants, {len(made.constants)}u",
            f"{made.constants_region}, {made.scratch_region}, {made.fast_region}",
            f"{made.scratch_bytes}u, {made.fast_bytes}u",
            ", ".join(twin),
        ]
        given = [f"const int8_t *restrict from{k}" for k in range(len(step.inputs))]
        taken = [f"int8_t *restrict to{k}" for k in range(len(step.outputs))]
        copies = [
            f"memcpy(at + {offset}, from{k}, {count});"
            for k, (offset, count) in enumerate(zip(made.inputs, compiled.input_bytes, strict=True))
        ]
        results = [
            f"memcpy(to{k}, at + {offset}, {count});"
            for k, (offset, count) in enumerate(
                zip(made.outputs, compiled.output_bytes, strict=True)
            )
        ]
        body = [
            f"static const edgekit_ethosu_region region = {{{', '.join(fields)}}};",
            "unsigned char *const at = (unsigned char *)scratch;",
            *copies,
            "const int status = edgekit_ethosu_run(&region, at);",
            *results,
            "return status;",
        ]
        lines = "".join(f"    {line}\n" for line in body)
        parameters = ", ".join((*given, *taken, "void *scratch"))
        return Kernel(
            maker=self.name,
            source=f"static int {name}({parameters})\n{{\n{lines}}}\n",
            constants=tuple(arrays),
            headers=('"edgekit_ethosu.h"',),
            scratch=made.scratch_bytes + made.fast_bytes,
            tells=True,
            library_sources=tuple(sources),
            note=self._note(compiled),
        )

    def _note(self, compiled: Compiled) -> str:
        figures = [
            counted(len(compiled.operators), "layer"),
            f"{compiled.counts.macs:,} multiply-accumulates",
            f"{size(len(compiled.made.constants))} of constants",
            f"{size(compiled.counts.moved)} moved",
        ]
        if compiled.made.cycles:
            figures.append(
                f"by Vela's estimate {compiled.made.cycles:,} cycles "
                f"and {size(compiled.made.estimated_bytes)}"
            )
        words = f"Vela {self.version} for {self.configuration.accelerator}: {', '.join(figures)}"
        return f"{words}; interpreted by the twin" if compiled.decoded is not None else words


class _Cutter:
    """Cuts runs of steps where Vela refuses them."""

    def __init__(self, program: Program, configuration: Configuration) -> None:
        self._program = program
        self._configuration = configuration
        self._tried: dict[tuple[str, ...], Step | str] = {}
        self.refusals: dict[str, str] = {}

    def regions(self, run: tuple[Step, ...]) -> list[Step]:
        """Return the run as one region, or as regions around the steps that Vela refuses."""
        whole = self._try(run)
        if isinstance(whole, Step):
            return [whole]
        if len(run) == 1:
            if whole:
                self.refusals[run[0].name] = whole
            return [*run]
        half = len(run) // 2
        halves = [*self.regions(run[:half]), *self.regions(run[half:])]
        refused = {step.name for step in halves if not isinstance(step.operator, NpuRegion)}
        pieces = _split(run, refused)
        if len(pieces) >= len(halves) or not refused:
            return halves
        return [step for piece in pieces for step in self.regions(piece)]

    def _try(self, run: tuple[Step, ...]) -> Step | str:
        """Return the region, or the reason why it is none."""
        key = tuple(step.name for step in run)
        if key not in self._tried:
            self._tried[key] = self._compiled(run)
        return self._tried[key]

    def _compiled(self, run: tuple[Step, ...]) -> Step | str:
        if type(run[0].operator) not in WRITERS or not _agree(run):
            return ""
        inputs, outputs = _ends(run, self._program)
        try:
            network = network_of(run, self._program.buffers, inputs, outputs)
            compiled = compile_region(network, self._configuration)
        except NotForVela as reason:
            return str(reason)
        name = max(run, key=_weight_bytes).name
        layers = tuple(dict.fromkeys(layer for step in run for layer in step.layers))
        words = tuple(type(step.operator).__name__ for step in run)
        return Step(name, NpuRegion("ethos-u", words, compiled), inputs, outputs, layers)


def _split(run: Sequence[Step], refused: set[str]) -> list[tuple[Step, ...]]:
    pieces: list[tuple[Step, ...]] = []
    piece: list[Step] = []
    for step in run:
        if step.name not in refused:
            piece.append(step)
            continue
        pieces += [tuple(piece)] if piece else []
        pieces.append((step,))
        piece = []
    return [*pieces, tuple(piece)] if piece else pieces


def _runs(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Yield neighbouring steps that can be one region; a step that none takes is alone."""
    run: list[Step] = []
    for step in steps:
        takes = type(step.operator) in WRITERS
        if run and not (takes and _agree((*run, step))):
            yield tuple(run)
            run = []
        if takes:
            run.append(step)
        else:
            yield (step,)
    if run:
        yield tuple(run)


def _agree(steps: Sequence[Step]) -> bool:
    try:
        quantisations(steps)
    except Disagreement:
        return False
    return True


def _weight_bytes(step: Step) -> int:
    weights = getattr(step.operator, "weights", None)
    return 0 if weights is None else int(weights.nbytes)


def _ends(run: Sequence[Step], program: Program) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the buffers that a run reads and those that others read of it."""
    made = [buffer for step in run for buffer in step.outputs]
    read = dict.fromkeys(buffer for step in run for buffer in step.inputs)
    names = {step.name for step in run}
    wanted = {b for step in program.steps if step.name not in names for b in step.inputs}
    inputs = tuple(buffer for buffer in read if buffer not in made)
    return inputs, tuple(b for b in made if b in wanted or b in program.results)


def _without_unused(program: Program) -> Program:
    """Drop the buffers inside of regions, whose places Vela plans."""
    used = {*range(len(program.inputs)), *program.results}
    used.update(buffer for step in program.steps for buffer in (*step.inputs, *step.outputs))
    kept = sorted(used)
    place: Mapping[int, int] = {buffer: k for k, buffer in enumerate(kept)}

    def moved(buffers: Sequence[int]) -> tuple[int, ...]:
        return tuple(place[buffer] for buffer in buffers)

    buffers: list[Buffer] = [program.buffers[buffer] for buffer in kept]
    steps = (replace(s, inputs=moved(s.inputs), outputs=moved(s.outputs)) for s in program.steps)
    return replace(
        program, buffers=tuple(buffers), steps=tuple(steps), results=moved(program.results)
    )
