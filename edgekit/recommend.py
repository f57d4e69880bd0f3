"""Which way to take with a model on a board: what is supported, what is known, what to try first.

The questions of somebody who has done it before, in their order: can it be built, does it fit,
which libraries take how much of it and why not more, what was measured, what has to be measured.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgekit.backends.registry import backend_names, load_backend
from edgekit.board import Board, board_names, load_board
from edgekit.errors import EdgekitError, MissingToolError
from edgekit.events import SILENT, Events
from edgekit.model import ModelSource
from edgekit.request import make_request
from edgekit.wording import size

if TYPE_CHECKING:
    from edgekit.backends.partition import Partition
    from edgekit.bench import BenchReport
    from edgekit.build import BuildRequest
    from edgekit.devices.base import Device
    from edgekit.model import Model
    from edgekit.store.runs import BenchRun
    from edgekit.summary import ModelSummary

Kind = Literal["kernels", "library", "int8"]

MUCH = 0.5
"""Of the multiply-accumulates: a library that takes so many is worth being tried first."""
_FEW_REGIONS = 4
_INT8_SHARE = 0.25
_NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Known:
    """The best that was measured of an option, on whichever device of the board."""

    median: float
    unit: str
    device: str
    measured_at: str
    run: str


@dataclass(frozen=True)
class Option:
    name: str
    """"edgekit's kernels", a library's name, or int8."""
    kind: Kind
    supported: bool
    command: str
    """What tries it."""
    reasons: tuple[str, ...]
    coverage: float | None = None
    """The share of the multiply-accumulates that the library takes; None where nobody asks."""
    regions: int | None = None
    known: Known | None = None


@dataclass(frozen=True)
class _Needs:
    """Bytes, of what lies in memory while it runs and of what was learnt."""

    activations: int
    weights: int


@dataclass(frozen=True)
class Advice:
    """For one board, the option to try first in front."""

    board: str
    title: str
    fits: bool
    fits_in_int8: bool
    """As far as a quarter of the memory goes."""
    memory: str
    """What the model needs beside what there is, in a sentence."""
    options: tuple[Option, ...]
    verdict: str


@dataclass(frozen=True)
class Recommendation:
    model: str
    sha256: str
    macs: int | None
    parameter_bytes: int
    obstacle: str | None
    """Why it can't be built at all; then there is no advice."""
    boards: tuple[Advice, ...]


def recommend(
    source: ModelSource,
    boards: Sequence[str],
    *,
    store: str | None = None,
    reach: Callable[[Board], Device] | None = None,
    events: Events = SILENT,
) -> Recommendation:
    """Advice for these boards, or for all. With `reach`, every supported option is tried on the
    board's device and measured first."""
    from edgekit.summary import summarise

    summary = summarise(source, events)
    if summary.obstacle is not None:
        return _recommendation(summary, summary.obstacle.message, ())
    from edgekit.model import import_model

    model = import_model(source, SILENT)
    chosen = _chosen(boards)
    needs = _needs(summary)
    # Of all microcontrollers the same: kernels for one of them take a little more or less.
    small = next((board for board in chosen if board.kind == "baremetal"), None)
    needs_in_c = needs if small is None else _needs_in_c(model, small, needs)
    advices = []
    for board in chosen:
        with events.stage(f"consider {board.name}") as stage:
            options = _options(model, source, board, summary)
            stage.result = f"{sum(option.supported for option in options)} options"
        if reach is not None:
            options = _measured(source, board, options, reach(board), events)
        measured = next((option.known for option in options if option.known), None)
        known = _known(source, board, store, measured)
        options = tuple(
            replace(option, known=option.known or known.get(_offload_of(option)))
            for option in options
        )
        wanted = needs_in_c if board.kind == "baremetal" else needs
        advices.append(_advice(board, wanted, options))
    return _recommendation(summary, None, tuple(advices))


def _recommendation(
    summary: ModelSummary, obstacle: str | None, advices: tuple[Advice, ...]
) -> Recommendation:
    return Recommendation(
        summary.name,
        summary.sha256,
        None if summary.cost is None else summary.cost.macs,
        summary.parameter_bytes,
        obstacle,
        advices,
    )


def _chosen(names: Sequence[str]) -> tuple[Board, ...]:
    return tuple(load_board(name) for name in (names or board_names()))


def _options(
    model: Model, source: ModelSource, board: Board, summary: ModelSummary
) -> tuple[Option, ...]:
    deploy = f"edgekit deploy {_in_shell(source)} --board {board.name}"
    own = Option(
        "edgekit's kernels",
        "kernels",
        supported=True,
        command=f"{deploy} --offload none",
        reasons=("needs nothing but the board's compiler",),
    )
    options = [own]
    for name in board.offload.allowed:
        if board.kind == "baremetal":
            options.append(
                Option(
                    name,
                    "library",
                    supported=_is_quantised(summary),
                    command=f"{deploy} --offload {name}",
                    reasons=(
                        "layer by layer, whichever of it and edgekit's own kernel costs less"
                        if _is_quantised(summary)
                        else "it computes in integers, and this model in floats",
                    ),
                )
            )
        elif name in backend_names():
            options.append(_library(model, board, name, f"{deploy} --offload {name}"))
        else:
            reason = "this edgekit has no backend of that name"
            options.append(Option(name, "library", False, "", (reason,)))
    if not _is_quantised(summary):
        options.append(_int8(source, board))
    return tuple(options)


def _library(model: Model, board: Board, name: str, command: str) -> Option:
    from edgekit.backends.plan import plan_offload, selection_of
    from edgekit.offload import ProjectOffload
    from edgekit.pipeline import partition_model

    try:
        plan = plan_offload(board, ProjectOffload(), (name,))
        found = partition_model(model, selection_of(plan))
    except EdgekitError as error:
        return Option(name, "library", False, command, (error.message,))
    macs = sum(decision.macs for decision in found.decisions)
    taken = sum(decision.macs for decision in found.decisions if decision.backend is not None)
    coverage = taken / macs if macs else 0.0
    regions = len(found.regions)
    return Option(
        name,
        "library",
        supported=regions > 0,
        command=command,
        reasons=(*_why(found, coverage, regions), *_missing(board, name)),
        coverage=coverage,
        regions=regions,
    )


def _missing(board: Board, name: str) -> tuple[str, ...]:
    """What this machine lacks to build for it."""
    from edgekit.cross.toolchain import load_toolchain

    try:
        load_backend(name).identity(board, load_toolchain(board.toolchain))
    except MissingToolError as error:
        return (error.message,)
    return ()


def _why(found: Partition, coverage: float, regions: int) -> tuple[str, ...]:
    """How much it takes, and what keeps it from the rest: the reason that costs the most first."""
    reasons = []
    if regions:
        pieces = "one region" if regions == 1 else f"{regions} regions"
        reasons.append(f"takes {coverage:.0%} of the multiply-accumulates in {pieces}")
    left: dict[str, int] = {}
    for decision in found.decisions:
        if decision.backend is None and decision.macs:
            words = f"{decision.operator}: {decision.reason}"
            left[words] = left.get(words, 0) + decision.macs
    if left and coverage < _NEARLY_ALL:
        reasons.append(max(left, key=lambda words: left[words]))
    if regions > _FEW_REGIONS:
        reasons.append("every region's boundary costs: measure before you trust it")
    return tuple(reasons) or ("takes nothing of this model",)


def _int8(source: ModelSource, board: Board) -> Option:
    reasons = ["a quarter of the memory; accuracy has to be measured on your own samples"]
    if source.format != "onnx":
        reasons.append("quantise it where it is converted")
        return Option("int8", "int8", False, "", tuple(reasons))
    if board.kind == "baremetal":
        reasons.insert(0, "what microcontrollers are fast at")
    command = f"edgekit quantize {_in_shell(source)} --calibrate SAMPLES"
    return Option("int8", "int8", True, command, tuple(reasons))


def _in_shell(source: ModelSource) -> str:
    return shlex.quote(str(source.path))


def _is_quantised(summary: ModelSummary) -> bool:
    kinds = {operator.name for operator in summary.operators}
    return (
        bool(kinds & {"QuantizeLinear", "QLinearConv"})
        or any(spec.quantization is not None for spec in (*summary.inputs, *summary.outputs))
        or (summary.format == "tflite" and bool(kinds & {"QUANTIZE", "DEQUANTIZE"}))
    )


def _offload_of(option: Option) -> tuple[str, ...]:
    return () if option.kind == "kernels" else (option.name,)


def _known(
    source: ModelSource, board: Board, store: str | None, like: Known | None
) -> Mapping[tuple[str, ...], Known]:
    """The best run of each offload, all of one device and unit, as times of several say nothing of
    the offload: those of `like`, else where most was measured. Without a store there is none."""
    from edgekit.recording import is_off
    from edgekit.results import list_results
    from edgekit.store.bench_runs import Wanted

    if is_off() and store is None:
        return {}
    wanted = Wanted(
        board=board.name,
        device=like.device if like is not None else None,
        limit=1000,
        model_sha256=source.sha256,
    )
    places: dict[tuple[str, str], dict[tuple[str, ...], BenchRun]] = {}
    for run in list_results(wanted, store).runs:
        if like is not None and run.unit != like.unit:
            continue
        found = places.setdefault((run.device, run.unit), {})
        best = found.get(run.build.offload)
        if best is None or run.median < best.median:
            found[run.build.offload] = run
    most = max(places.values(), key=len, default={})  # the latest where there are several
    return {
        offload: Known(run.median, run.unit, run.device, run.measured_at, run.id)
        for offload, run in most.items()
    }


def _measured(
    source: ModelSource,
    board: Board,
    options: tuple[Option, ...],
    device: Device,
    events: Events,
) -> tuple[Option, ...]:
    done = []
    with tempfile.TemporaryDirectory(prefix="edgekit-recommend-") as folder:
        for option in options:
            if not option.supported or option.kind == "int8":
                done.append(option)
                continue
            request = make_request(
                source.path,
                board.name,
                None,
                source.shapes,
                source.constants,
                offload=_offload_of(option),
            )
            out = Path(folder) / option.name.replace(" ", "-").replace("'", "")
            try:
                report = _tried(request, device, out, events)
            except EdgekitError as error:
                reasons = (*option.reasons, f"failed: {error.message}")
                done.append(replace(option, supported=False, reasons=reasons))
                continue
            counted = report.counted
            median = report.median if counted is None else float(counted.median)
            unit = "seconds" if counted is None else counted.unit
            known = Known(median, unit, device.name, "now", "")
            done.append(replace(option, known=known))
    return tuple(done)


def _tried(request: BuildRequest, device: Device, out: Path, events: Events) -> BenchReport:
    """Proven and measured; what is current on the device stays so."""
    from edgekit.bench import bench
    from edgekit.build import build
    from edgekit.deploy import SHORT_BENCH, brief
    from edgekit.verify import raise_if_failed, verify

    bundle = build(request, out, events=events).bundle
    with device.opened(bundle, events=events) as session:
        verification = verify(bundle, session, events=events)
        raise_if_failed(verification)
        plan = brief(SHORT_BENCH, verification)
        return bench(bundle, session, plan, events, purpose="recommend")


def _needs(summary: ModelSummary) -> _Needs:
    peak = summary.cost.peak_activation_bytes if summary.cost is not None else None
    return _Needs(peak or 0, summary.parameter_bytes)


def _needs_in_c(model: Model, board: Board, otherwise: _Needs) -> _Needs:
    """By planning the arena of its C; what can't become C is told by a build, not here."""
    from edgekit.aot.compile import compile_tree
    from edgekit.aot.generators import portable_generators
    from edgekit.aot.tree import Origin

    origin = Origin("model", "model", "", board.name, board.cpu.name)
    try:
        plan = compile_tree(model, "model", board.cpu, origin, portable_generators()).plan
    except EdgekitError:
        return otherwise
    constants = sum(c.array.nbytes for kernel in plan.kernels for c in kernel.constants)
    return _Needs(plan.arena.bytes, constants)


def _advice(board: Board, needs: _Needs, options: tuple[Option, ...]) -> Advice:
    fits, memory = _memory(board, needs, share=1.0)
    smaller, _ = _memory(board, needs, share=_INT8_SHARE)
    ordered = tuple(sorted(options, key=lambda option: _place(option, fits)))
    verdict = _verdict(ordered) if fits else _too_large(ordered, smaller)
    return Advice(board.name, board.title, fits, smaller, memory, ordered, verdict)


def _place(option: Option, fits: bool) -> tuple[int, float]:
    """What was measured first, the fastest in front; then what promises most."""
    if not option.supported:
        return (9, 0.0)
    if not fits:
        return (0 if option.kind == "int8" else 5, 0.0)
    if option.known is not None:
        return (1, option.known.median)
    if option.kind == "library":
        coverage = option.coverage or 0.0
        return (2 if coverage >= MUCH else 4, -coverage)
    return (3 if option.kind == "kernels" else 6, 0.0)


def _memory(board: Board, needs: _Needs, share: float) -> tuple[bool, str]:
    """Whether a share of what the model needs fits, and what it needs in words."""
    weights, memory = int(needs.weights * share), board.memory
    need_ram = int(needs.activations * share) + (weights if memory.flash is None else 0)
    words = f"about {size(need_ram)} of {size(memory.ram)} of memory"
    fits = need_ram <= memory.ram
    if memory.flash is not None:
        words += f", {size(weights)} of {size(memory.flash)} of flash"
        fits = fits and weights <= memory.flash
    return fits, words if fits else f"does not fit: {words}"


def _too_large(options: tuple[Option, ...], fits_in_int8: bool) -> str:
    int8 = any(option.kind == "int8" for option in options)
    if int8 and fits_in_int8:
        return "too large as it is; in int8 it may fit"
    even = ", even in int8" if int8 else ""
    return f"too large{even}: a smaller model, or a larger board"


def _verdict(options: tuple[Option, ...]) -> str:
    supported = [option for option in options if option.supported]
    if not supported:
        return "nothing of edgekit's can run it there"
    first = supported[0]
    measured = [option for option in supported if option.known is not None]
    if len(measured) > 1:
        slower = measured[1]
        assert first.known is not None and slower.known is not None
        ratio = slower.known.median / first.known.median if first.known.median else 1.0
        return f"{first.name}: measured {ratio:.2f} times as fast as {slower.name}"
    if measured and first.known is not None:
        untried = [o.name for o in supported if o.known is None and o.kind != "int8"]
        more = f"; not measured yet: {', '.join(untried)}" if untried else ""
        return f"{first.name} is what was measured{more}"
    if first.kind == "library":
        share = "" if first.coverage is None else f", it takes {first.coverage:.0%} of the work"
        return f"try {first.name} first{share}; --measure decides"
    return f"try {first.name} first; --measure decides"
