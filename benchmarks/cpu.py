"""edgekit's own schedules against onnxruntime on this machine, in alternating rounds.

    python -m benchmarks.cpu                       # nine networks, one thread and all cores
    python -m benchmarks.cpu --quick --filter ResNet
    python -m benchmarks.cpu --per-op --filter MobileNetV2
    python -m benchmarks.cpu --docs                # writes the table in docs/schedules.md

Either runs in a process of its own. Ratios are edgekit's time to onnxruntime's: below 1, edgekit
is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import onnx

from benchmarks import networks
from benchmarks.kernel_work import Work, work_of
from benchmarks.model_zoo import MODELS, fetch
from benchmarks.models import machine
from benchmarks.onnxruntime_run import measure as run_onnxruntime
from benchmarks.roof import Roof, measure_roof
from edgekit.bench import Profile, bench
from edgekit.build import build
from edgekit.bundle import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.local import LocalDevice
from edgekit.model import ModelSource, import_model
from edgekit.request import make_request
from edgekit.tvm_compat import load_tvm
from edgekit.wording import size

DOCS = Path(__file__).resolve().parent.parent / "docs" / "schedules.md"
MARK = "<!-- benchmarks.cpu --docs -->\n"
TRAINED = ("MobileNetV2", "RetinaFace MobileNet0.25", "PP-OCRv4 detection", "magika")
SHAPED = ("ResNet-18", "ResNet-50", "SqueezeNet", "AlexNet", "YOLOv8n")
SHOWN = 15


@dataclass(frozen=True)
class Effort:
    rounds: int
    seconds: float
    """Of each runtime in each round."""


FULL, QUICK = Effort(5, 1.0), Effort(3, 0.2)


@dataclass(frozen=True)
class Timing:
    """Of one network on so many threads: medians of the rounds, in seconds."""

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


def sources(wanted: str, folder: Path) -> list[tuple[str, ModelSource]]:
    """The networks by name; random ones are written into the folder."""
    found = []
    for model in MODELS:
        if model.name in TRAINED and wanted.lower() in model.name.lower():
            request = make_request(fetch(model), "local", None, model.shapes, {})
            found.append((model.name, request.source))
    for name in SHAPED:
        if wanted.lower() in name.lower():
            path = folder / f"{name}.onnx"
            onnx.save(networks.build(name), path)
            found.append((name, make_request(path, "local", None, {}, {}).source))
    return found


def measure(
    name: str, source: ModelSource, effort: Effort, roof: Roof, folder: Path, per_operator: bool
) -> Result:
    say(f"{name}: compiling")
    request = make_request(source.path, "local", None, source.shapes, {})
    started = time.perf_counter()
    bundle = build(request, folder / f"{name}-bundle", use_cache=False).bundle
    compile_seconds = time.perf_counter() - started
    timings, ours, theirs = [], None, 0
    for threads in sorted({1, os.cpu_count() or 1}):
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
    work = work_of(import_model(source), request.board.target)
    inputs = bundle.reference_inputs()
    profiled = run_onnxruntime(source.path, inputs, 1, effort.seconds, profile=True)
    operators = sorted(profiled.operators.items(), key=lambda entry: -entry[1])
    kernels = _kernels(bundle, profile, work, roof)
    return replace(result, kernels=kernels, operators=tuple(operators))


def _alternate(
    bundle: Bundle, source: ModelSource, threads: int, effort: Effort
) -> tuple[Timing, int | None, int]:
    """In turns, so that a busy moment of the machine hits both."""
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


def _kernels(
    bundle: Bundle, profile: Profile, work: dict[str, Work], roof: Roof
) -> tuple[KernelTime, ...]:
    rules = {kernel.name: kernel.rule for kernel in bundle.manifest.kernels}
    times = []
    for kernel in profile.kernels:
        done = work.get(kernel.name, Work(0, 0))
        least = kernel.calls * roof.seconds(done.flops, done.bytes)
        share = least / kernel.seconds if kernel.seconds else 0.0
        times.append(KernelTime(kernel.name, rules.get(kernel.name, "–"), kernel.seconds, share))
    return tuple(times)


def summary(results: Sequence[Result], roofs: Sequence[Roof]) -> str:
    """Everything but the kernels, as Markdown."""
    threads = [timing.threads for timing in results[0].timings]
    heads = [f"{_on(count)}: edgekit ms | onnxruntime ms | ratio" for count in threads]
    lines = [
        f"| network | {' | '.join(heads)} | memory: edgekit | onnxruntime | compiled in s |",
        "|---" * (4 + 3 * len(threads)) + "|",
    ]
    for result in results:
        cells = [result.network]
        for timing in result.timings:
            cells += [
                _milliseconds(timing.edgekit),
                _milliseconds(timing.onnxruntime),
                f"{timing.ratio:.2f} ({min(timing.ratios):.2f} to {max(timing.ratios):.2f})",
            ]
        ours = "–" if result.edgekit_memory is None else size(result.edgekit_memory)
        cells += [ours, size(result.onnxruntime_memory), f"{result.compile_seconds:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for place, count in enumerate(threads):
        mean = statistics.geometric_mean(result.timings[place].ratio for result in results)
        lines.append(f"Geometric mean of the ratios on {_on(count)}: {mean:.2f}.")
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


def write_docs(text: str) -> None:
    """In place of what an earlier run wrote behind the mark."""
    page = DOCS.read_text(encoding="utf-8")
    before, mark, _ = page.partition(MARK)
    assert mark, f"{DOCS} has lost its mark"
    note = (
        f"Medians of {FULL.rounds} rounds, the ratios with their spread. Measured on {machine()}."
    )
    DOCS.write_text(f"{before}{MARK}\n{text}\n{note}\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="edgekit against onnxruntime on this CPU")
    parser.add_argument("--filter", default="", help="only networks whose name contains this")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--per-op", action="store_true", help="each kernel, beside the roof")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--docs", action="store_true", help="write docs/schedules.md's table")
    options = parser.parse_args(arguments)
    if options.docs and (options.filter or options.quick):
        parser.error("--docs takes all networks and full rounds")
    effort = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = sources(options.filter, folder)
        if not chosen:
            parser.error("no network has such a name")
        roofs = [measure_roof(count, lanes()) for count in sorted({1, os.cpu_count() or 1})]
        results = [
            measure(network, source, effort, roofs[0], folder, options.per_op)
            for network, source in chosen
        ]
    text = summary(results, roofs)
    print(text)
    print(f"Measured on {machine()}.\n")
    if options.per_op:
        print("\n".join(kernels_in_words(result) for result in results))
    if options.json:
        document = {"roofs": [asdict(r) for r in roofs], "results": [asdict(r) for r in results]}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if options.docs:
        write_docs(text)


def lanes() -> int:
    """float32 in a vector of this machine."""
    from edgekit.cpu import this_cpu
    from edgekit.schedules.machine import machine_of

    tvm = load_tvm()
    return machine_of(tvm.target.Target(this_cpu()[1].as_json())).lanes


if __name__ == "__main__":
    main()
