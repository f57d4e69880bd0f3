"""edgekit's own schedules against onnxruntime on this machine, in alternating rounds.

    python -m benchmarks.cpu                       # nine networks, one thread and all cores
    python -m benchmarks.cpu --quick --filter ResNet
    python -m benchmarks.cpu --per-op --filter MobileNetV2
    python -m benchmarks.cpu --docs                # writes the table in docs/schedules.md
    python -m benchmarks.cpu --json run.json       # and again: goes on with what is missing there
    python -m benchmarks.cpu --counts rpi4         # instructions on an emulated board

Either runs in a process of its own. Ratios are edgekit's time to onnxruntime's: below 1, edgekit
is faster. Each network's row is printed when it is done; one that fails is told of at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from benchmarks import networks
from benchmarks.doc_table import write_table
from benchmarks.instruction_counts import count, counting_twin, counts_in_words
from benchmarks.kernel_work import StepWork, work_of_steps
from benchmarks.model_zoo import MODELS, ZooModel, fetch
from benchmarks.models import machine
from benchmarks.onnxruntime_run import measure as run_onnxruntime
from benchmarks.roof import Roof, measure_roof
from edgekit.api.functions import make_request
from edgekit.base.files import write_atomically
from edgekit.base.tvm_compat import load_tvm
from edgekit.base.wording import size
from edgekit.building.build import build
from edgekit.building.key import package_digest
from edgekit.bundle.folder import Bundle
from edgekit.compiler.schedules.choices import NO_CHOICES
from edgekit.compiler.work import Work
from edgekit.devices.base import BenchPlan
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import ModelSource, import_model
from edgekit.verbs.bench import bench
from edgekit.verbs.bench_report import Profile

DOCS = Path(__file__).resolve().parent.parent / "docs" / "schedules.md"
MARK = "<!-- benchmarks.cpu --docs -->\n"
COUNTS_MARK = "<!-- benchmarks.cpu --counts -->\n"
MOST_LOAD = 0.5
"""The load of one core, before the first network: with more, others are measured too."""
TRAINED = ("MobileNetV2", "RetinaFace MobileNet0.25", "PP-OCRv4 detection", "magika")
SHAPED = ("ResNet-18", "ResNet-50", "SqueezeNet", "AlexNet", "YOLOv8n")
SHOWN = 15


@dataclass(frozen=True)
class Effort:
    rounds: int
    seconds: float
    """The figure of each runtime in each round."""


FULL, QUICK = Effort(5, 0.6), Effort(3, 0.2)


@dataclass(frozen=True)
class Timing:
    """The results of one network on so many threads: medians of the rounds, in seconds."""

    threads: int
    edgekit: tuple[float, ...]
    onnxruntime: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(m / t for m, t in zip(self.edgekit, self.onnxruntime, strict=True))

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


@dataclass(frozen=True)
class KernelTime:
    name: str
    rule: str
    seconds: float
    roof: float
    """The share of what the machine can do at most, between 0 and 1."""


@dataclass(frozen=True)
class Result:
    network: str
    compile_seconds: float
    timings: tuple[Timing, ...]
    edgekit_memory: int | None
    """Bytes that the model added at the peak, on one thread."""
    onnxruntime_memory: int
    kernels: tuple[KernelTime, ...] = ()
    operators: tuple[tuple[str, float], ...] = ()
    """onnxruntime's own, with their seconds."""


Network = tuple[str, Callable[[Path], ModelSource]]
"""A name, and how to have its model: fetched, or written into a folder."""


def chosen_networks(wanted: str) -> list[Network]:
    trained: list[Network] = [(m.name, partial(_fetched, m)) for m in MODELS if m.name in TRAINED]
    shaped: list[Network] = [(name, partial(_written, name)) for name in SHAPED]
    return [network for network in (*trained, *shaped) if wanted.lower() in network[0].lower()]


def _fetched(model: ZooModel, folder: Path) -> ModelSource:
    del folder
    return make_request(fetch(model), "local", None, model.shapes, {}).source


def _written(name: str, folder: Path) -> ModelSource:
    path = folder / f"{name}.onnx"
    onnx.save(networks.build(name), path)
    return make_request(path, "local", None, {}, {}).source


def measure(
    name: str, source: ModelSource, effort: Effort, roof: Roof, folder: Path, per_operator: bool
) -> Result:
    say(f"{name}: compiling")
    request = make_request(source.path, "local", None, source.shapes, {})
    request = replace(request, choices=NO_CHOICES)  # untuned, whatever was measured here before
    started = time.perf_counter()
    bundle = build(request, folder / f"{name}-bundle", use_cache=False).bundle
    compile_seconds = time.perf_counter() - started
    timings, ours, theirs = [], None, 0
    for threads in thread_counts():
        say(f"{name}: timing on {threads} threads")
        timing, mine, other = _alternate(bundle, source, threads, effort)
        timings.append(timing)
        if threads == 1:
            ours, theirs = mine, other
    result = Result(name, compile_seconds, tuple(timings), ours, theirs)
    if not per_operator:
        return result
    plan = BenchPlan(warmup=2, runs=3, seconds=effort.seconds, threads=1, profiled=10)
    profile = bench(bundle, LocalDevice(), plan).profile
    assert profile is not None
    load_tvm()
    work = work_of_steps(import_model(source), request.board.target)
    inputs = bundle.reference_inputs()
    profiled = run_onnxruntime(source.path, inputs, 1, effort.seconds, profile=True)
    operators = sorted(profiled.operators.items(), key=lambda entry: -entry[1])
    kernels = _kernels(profile, work, roof)
    return replace(result, kernels=kernels, operators=tuple(operators))


def _alternate(
    bundle: Bundle, source: ModelSource, threads: int, effort: Effort
) -> tuple[Timing, int | None, int]:
    """Measure in turns, so that a busy moment of the machine hits both."""
    plan = BenchPlan(warmup=2, runs=3, seconds=effort.seconds, threads=threads)
    inputs = bundle.reference_inputs()
    ours, theirs, memory, their_memory = [], [], None, 0
    for _ in range(effort.rounds):
        report = bench(bundle, LocalDevice(), plan)
        other = run_onnxruntime(source.path, inputs, threads, effort.seconds)
        ours.append(report.median)
        theirs.append(statistics.median(other.seconds))
        memory, their_memory = report.memory.model_peak, other.memory
    return Timing(threads, tuple(ours), tuple(theirs)), memory, their_memory


def _kernels(profile: Profile, work: Mapping[str, StepWork], roof: Roof) -> tuple[KernelTime, ...]:
    times = []
    for kernel in profile.kernels:
        step = work.get(kernel.name, StepWork((), (), (), Work()))
        share = roof.seconds(step.work) / kernel.seconds if kernel.seconds else 0.0
        times.append(KernelTime(kernel.name, step.rule, kernel.seconds, share))
    return tuple(times)


def head() -> str:
    heads = [f"{_on(count)}: edgekit ms | onnxruntime ms | ratio" for count in thread_counts()]
    return (
        f"| network | {' | '.join(heads)} | memory: edgekit | onnxruntime | compiled in s |\n"
        + "|---" * (4 + 3 * len(heads))
        + "|"
    )


def row(result: Result) -> str:
    cells = [result.network]
    for timing in result.timings:
        cells += [
            _milliseconds(timing.edgekit),
            _milliseconds(timing.onnxruntime),
            f"{timing.ratio:.2f} ({min(timing.ratios):.2f} to {max(timing.ratios):.2f})",
        ]
    ours = "–" if result.edgekit_memory is None else size(result.edgekit_memory)
    cells += [ours, size(result.onnxruntime_memory), f"{result.compile_seconds:.1f}"]
    return "| " + " | ".join(cells) + " |"


def below(results: Sequence[Result], roofs: Sequence[Roof]) -> str:
    """What all networks come to, and the machine."""
    lines = []
    for place, threads in enumerate(thread_counts()):
        ratios = [result.timings[place].ratio for result in results]
        lines.append(
            f"Geometric mean of the ratios on {_on(threads)}: "
            f"{statistics.geometric_mean(ratios):.2f}, the largest {max(ratios):.2f}."
        )
    memory = [
        result.edgekit_memory / result.onnxruntime_memory
        for result in results
        if result.edgekit_memory and result.onnxruntime_memory
    ]
    if memory:
        lines.append(
            f"Peak memory: {statistics.geometric_mean(memory):.2f} times onnxruntime's, "
            f"at most {max(memory):.2f}."
        )
    lines.append("")
    for roof in roofs:
        lines.append(
            f"The roof on {_on(roof.threads)}: {roof.flops / 1e9:.0f} GFLOP/s, "
            f"{roof.bytes / 1e9:.1f} GB/s read."
        )
    return "\n".join(lines) + "\n"


def kernels_in_words(result: Result) -> str:
    lines = [f"{result.network}, one thread", ""]
    lines += ["| kernel | rule | ms | of the roof |", "|---|---|---|---|"]
    for kernel in result.kernels[:SHOWN]:
        cells = [kernel.name, kernel.rule, f"{kernel.seconds * 1e3:.3f}", f"{kernel.roof:.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    rest = result.kernels[SHOWN:]
    lines.append(f"| {len(rest)} others | | {sum(k.seconds for k in rest) * 1e3:.3f} | |")
    lines += ["", "| onnxruntime's operators | ms |", "|---|---|"]
    lines += [f"| {name} | {seconds * 1e3:.3f} |" for name, seconds in result.operators]
    return "\n".join(lines) + "\n"


def _on(threads: int) -> str:
    return "one thread" if threads == 1 else f"{threads} threads"


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.3g}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="edgekit against onnxruntime on this CPU")
    parser.add_argument("--filter", default="", help="only networks whose name contains this")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--per-op", action="store_true", help="each kernel, beside the roof")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep everything there, and go on from it"
    )
    parser.add_argument("--docs", action="store_true", help="write docs/schedules.md's table")
    parser.add_argument(
        "--counts", metavar="BOARD", help="count instructions on its emulated twin instead"
    )
    options = parser.parse_args(arguments)
    if options.docs and (options.filter or options.quick):
        parser.error("--docs takes all networks and full rounds")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = chosen_networks(options.filter)
        if not chosen:
            parser.error("no network has such a name")
        if options.counts:
            _count(chosen, options.counts, folder, options.docs)
            return
        effort = QUICK if options.quick else FULL
        _compare(chosen, effort, folder, options)


def _compare(
    chosen: Sequence[Network],
    effort: Effort,
    folder: Path,
    options: argparse.Namespace,
) -> None:
    load = os.getloadavg()[0]
    if load > MOST_LOAD:
        say(f"the machine is busy (load average {load:.1f}): ratios are rough, times are worse")
    roofs = [measure_roof(count, lanes()) for count in thread_counts()]
    results = _earlier(options.json, effort, options.per_op)
    failed: dict[str, str] = {}
    print(head(), flush=True)
    for network, source in chosen:
        done = next((result for result in results if result.network == network), None)
        if done is None:
            try:
                done = measure(network, source(folder), effort, roofs[0], folder, options.per_op)
            except Exception as error:  # noqa: BLE001 - the other networks are still of interest
                failed[network] = f"{type(error).__name__}: {error}".splitlines()[0]
                say(f"{network}: {failed[network]}")
                continue
            results.append(done)
            _keep(options.json, effort, roofs, results)
        print(row(done), flush=True)
    wanted = [name for name, _ in chosen]
    results = [result for result in results if result.network in wanted]
    if results:
        print(f"\n{below(results, roofs)}\nMeasured on {machine()}.\n")
    if options.per_op:
        print("\n".join(kernels_in_words(result) for result in results))
    if options.docs and not failed:
        note = f"Medians of {effort.rounds} rounds, the ratios with their spread. Measured on "
        table = "\n".join([head(), *(row(result) for result in results)])
        write_table(DOCS, MARK, f"{table}\n\n{below(results, roofs)}\n{note}{machine()}.")
    if failed:
        raise SystemExit("\n".join(f"{network}: {why}" for network, why in failed.items()))


def _earlier(file: Path | None, effort: Effort, per_operator: bool) -> list[Result]:
    """What an earlier run of this very edgekit left in the file."""
    if file is None or not file.is_file():
        return []
    document = json.loads(file.read_text(encoding="utf-8"))
    if document["edgekit"] != package_digest() or document["effort"] != asdict(effort):
        say(f"{file} is of another edgekit or other rounds: starting anew")
        return []
    found = [_result(item) for item in document["results"]]
    return [result for result in found if result.kernels or not per_operator]


def _result(item: dict[str, Any]) -> Result:
    timings = tuple(
        Timing(t["threads"], tuple(t["edgekit"]), tuple(t["onnxruntime"])) for t in item["timings"]
    )
    kernels = tuple(KernelTime(**kernel) for kernel in item["kernels"])
    operators = tuple((name, seconds) for name, seconds in item["operators"])
    return Result(**{**item, "timings": timings, "kernels": kernels, "operators": operators})


def _keep(
    file: Path | None, effort: Effort, roofs: Sequence[Roof], results: Sequence[Result]
) -> None:
    if file is not None:
        document = {
            "edgekit": package_digest(),
            "effort": asdict(effort),
            "roofs": [asdict(roof) for roof in roofs],
            "results": [asdict(result) for result in results],
        }
        write_atomically(file, json.dumps(document, indent=2) + "\n")


def _count(chosen: Sequence[Network], board: str, folder: Path, docs: bool) -> None:
    with counting_twin(board, folder) as twin:
        counted = []
        for network, source in chosen:
            counted.append(count(network, source(folder), twin, folder, say))
            say(counts_in_words(counted[-1:], board))
    text = counts_in_words(counted, board)
    print(text)
    if docs:
        write_table(DOCS, COUNTS_MARK, text)


def thread_counts() -> list[int]:
    return sorted({1, os.cpu_count() or 1})


def lanes() -> int:
    """float32 in a vector of this machine."""
    from edgekit.compiler.schedules.machine import machine_of
    from edgekit.profiles.cpu import this_cpu

    tvm = load_tvm()
    return machine_of(tvm.target.Target(this_cpu()[1].as_json())).lanes


if __name__ == "__main__":
    main()
