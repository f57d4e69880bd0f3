"""Real trained models through edgekit on this machine, compared with their own runtimes.

    python -m benchmarks.models --json run.json --only-verdicts    # builds, compares, keeps
    python -m benchmarks.models --json run.json --only-times       # times what was built
    python -m benchmarks.models --json run.json                    # both, one model after the other
    python -m benchmarks.models --filter mlperf                    # some of them; prints only

With `--json` each row is kept as soon as it is known, with a digest of the code that it judges, and
docs/models.md is written. The same command goes on with what is missing there or is of other code,
the oldest rows last; `--seconds 1200` begins no model after so long. Verdicts and sizes do not
depend on how busy the machine is; times need a quiet one. Builds lie in the folder run.bundles.

Each model is imported, built for the board `local`, verified with the bundle's reference vectors
and with seeded inputs, and timed against its runtime's fast kernels: both on one thread, in turns.
Models that are refused or fail stay in the table with their reason.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict

import numpy as np

from benchmarks.model_results import (
    CRASH,
    DOCS,
    RIGHT,
    ROUNDS,
    SEEDS,
    WRONG,
    Results,
    Times,
    Verdict,
    code,
    line,
    page,
    summary,
    today,
)
from benchmarks.model_zoo import MODELS, ZooModel, fetch
from edgekit.advice.summary import summarise
from edgekit.api.functions import make_request
from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.cancel import Cancellation
from edgekit.base.errors import EdgekitError, InterruptedByUserError, UnsupportedModelError
from edgekit.base.tensors import TensorSpec
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import Bundle, open_bundle
from edgekit.bundle.samples import Sample
from edgekit.devices.base import BenchPlan
from edgekit.devices.local.device import LocalDevice
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import ModelSource, open_model, scan_model
from edgekit.models.oracle import oracle_for
from edgekit.models.oracle_types import Oracle
from edgekit.verbs.bench import bench
from edgekit.verbs.verify import verify

PLAN = BenchPlan(warmup=1, runs=3, seconds=0.3, threads=1)


@dataclass(frozen=True)
class Error:
    """The largest difference over all outputs and seeds."""

    relative: float
    """The difference relative to the largest expected element, for outputs in floats."""
    steps: int | None
    """The difference in output steps; None if no output is quantised."""

    def __str__(self) -> str:
        if self.steps is not None:
            return "none" if self.steps == 0 else f"{self.steps} LSB"
        return "none" if self.relative == 0 else f"{self.relative:.1e}"


Say = Callable[[str], None]


def judge(model: ZooModel, folder: Path, say: Say, limit: float) -> Verdict:
    """Build within `limit` seconds into a folder, and compare; a failure is a verdict."""
    verdict = Verdict("", code(), today())
    try:
        say(f"{model.name}: building")
        source = open_model(fetch(model), model.shapes, _constants(model))
        scan = scan_model(source)
        verdict = replace(
            verdict,
            format=describe_format(source),
            operators=sum(entry.count for entry in scan.operators),
            kinds=len(scan.operators),
            parameters=scan.parameters,
        )
        request = request_of(model)
        started = time.perf_counter()
        bundle = _built(request, folder, limit)
        verdict = replace(verdict, build_seconds=time.perf_counter() - started, macs=_macs(source))
        say(f"{model.name}: comparing")
        return replace(verdict, **_verified(model, request, bundle))
    except EdgekitError as failure:
        return replace(verdict, result=failure.message)
    except Exception as crash:  # noqa: BLE001 - a crash is a row of the table, and fails the run
        traceback.print_exc()
        return replace(verdict, result=f"{CRASH}: {type(crash).__name__}")


def _built(request: BuildRequest, folder: Path, limit: float) -> Bundle:
    """Build as the command line does; UnsupportedModelError where it takes too long."""
    cancel = Cancellation()
    timer = threading.Timer(limit, cancel.cancel)
    timer.daemon = True
    timer.start()
    try:
        with cancel.ending():
            return build(request, folder, use_cache=False).bundle
    except InterruptedByUserError as error:
        raise UnsupportedModelError(f"the build did not end in {limit:.0f} s") from error
    finally:
        timer.cancel()


def request_of(model: ZooModel) -> BuildRequest:
    return make_request(fetch(model), "local", None, model.shapes, _constants(model))


def _constants(model: ZooModel) -> dict[str, Array]:
    return {name: np.asarray(value) for name, value in model.constants.items()}


def describe_format(source: ModelSource) -> str:
    if source.format == "tflite":
        return "TFLite"
    if source.format == "torch":
        return "PyTorch"
    import onnx

    opsets = onnx.load(source.path, load_external_data=False).opset_import
    return "ONNX " + str(next(entry.version for entry in opsets if entry.domain in ("", "ai.onnx")))


def _macs(source: ModelSource) -> int | None:
    cost = summarise(source).cost
    return None if cost is None else cost.macs


def inputs_for(model: ZooModel, specs: Sequence[TensorSpec], seed: int) -> dict[str, Array]:
    """Seeded inputs; where an input holds classes or characters, over all of them."""
    inputs = reference_inputs(specs, seed)
    source = np.random.default_rng(seed)
    for spec in specs:
        if spec.name in model.ranges:
            least, largest = model.ranges[spec.name]
            values = source.integers(least, largest + 1, spec.shape)
            inputs[spec.name] = values.astype(numpy_dtype(spec.dtype))
    return inputs


def compare(model: ZooModel, request: BuildRequest, bundle: Bundle) -> tuple[Error, int | None]:
    """edgekit's outputs against the oracle's on every seed, and how often the answer agreed."""
    oracle = oracle_for(request.source)
    specs = [entry.spec for entry in bundle.manifest.inputs]
    outputs = [entry.spec for entry in bundle.manifest.outputs]
    samples = [inputs_for(model, specs, seed) for seed in range(SEEDS)]
    errors, agreed = [], 0
    with LocalDevice().opened(bundle) as session:
        for sample, result in zip(samples, session.run_all(samples), strict=True):
            expected = oracle.run(sample)
            errors += [_difference(spec, result.outputs[spec.name], expected) for spec in outputs]
            if model.classes:
                agreed += int(
                    result.outputs[model.classes].argmax() == expected[model.classes].argmax()
                )
    steps = [error.steps for error in errors if error.steps is not None]
    largest = Error(max(error.relative for error in errors), max(steps) if steps else None)
    return largest, agreed if model.classes else None


def _difference(spec: TensorSpec, found: Array, expected: Mapping[str, Array]) -> Error:
    wanted = expected[spec.name].astype("float64")
    largest = float(np.abs(found.astype("float64") - wanted).max(initial=0.0))
    if spec.quantization is not None:
        return Error(0.0, int(largest))
    return Error(largest / max(float(np.abs(wanted).max(initial=0.0)), 1e-30), None)


class _Comparison(TypedDict):
    result: str
    error: str
    agreed: int | None


def _verified(model: ZooModel, request: BuildRequest, bundle: Bundle) -> _Comparison:
    """Compare as `edgekit verify` does, with the reference vectors and with seeded inputs."""
    specs = [entry.spec for entry in bundle.manifest.inputs]
    samples = (Sample(f"seed {seed}", inputs_for(model, specs, seed)) for seed in range(SEEDS))
    reference = verify(bundle, LocalDevice()).outputs
    seeded = verify(bundle, LocalDevice(), samples=samples, source=request.source).outputs
    failed = [
        output.mismatch
        or f"{output.name} is off by {output.error_in_words()} ({output.worst_sample})"
        for output in (*reference, *seeded)
        if not output.passed
    ]
    floats = [output for output in seeded if output.unit == "absolute"]
    steps = [round(output.max_error) for output in seeded if output.unit == "steps"]
    relative = max((output.max_error / max(output.largest, 1e-30) for output in floats), default=0)
    same = [output.top1_agreement for output in seeded if output.name == model.classes]
    return {
        "result": f"{WRONG}: {'; '.join(failed[:2])}" if failed else RIGHT,
        "error": str(Error(relative, max(steps) if steps else None)),
        "agreed": round(same[0] * SEEDS) if same and same[0] is not None else None,
    }


def take_times(model: ZooModel, bundle: Bundle, judged: str) -> Times:
    """edgekit and the oracle in turns, so that a busy moment of the machine hits both."""
    oracle: Oracle = oracle_for(request_of(model).source)
    sample = inputs_for(model, [entry.spec for entry in bundle.manifest.inputs], 0)
    ours, ratios = [], []
    for _ in range(ROUNDS):
        mine = bench(bundle, LocalDevice(), PLAN).median
        theirs = statistics.median(
            oracle.time(sample, threads=1, runs=max(5, int(PLAN.seconds / mine)))
        )
        ours.append(mine)
        ratios.append(mine / theirs)
    return Times(statistics.median(ours), tuple(ratios), judged, today(), machine())


def machine() -> str:
    """The processor, and how busy it was: other work shares most machines."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    load = f"a load average of {os.getloadavg()[0]:.1f} when the table was finished"
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, {load}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="real models through edgekit")
    parser.add_argument("--filter", default="", help="only models whose name contains this")
    parser.add_argument("--json", type=Path, help="keep the rows in this file, and go on there")
    parser.add_argument("--seconds", type=float, help="begin no model after so many seconds")
    parser.add_argument("--page", type=Path, default=DOCS, help="the page to write")
    parser.add_argument(
        "--limit", type=float, default=900, help="end a build after so many seconds"
    )
    phases = parser.add_mutually_exclusive_group()
    phases.add_argument("--only-verdicts", action="store_true", help="build and compare, no times")
    phases.add_argument(
        "--only-times", action="store_true", help="time what was built, with --json"
    )
    options = parser.parse_args(arguments)
    if options.only_times and options.json is None:
        parser.error("--only-times takes the builds beside the file that --json names")
    chosen = [model for model in MODELS if options.filter.lower() in model.name.lower()]
    results = Results(options.json)
    started = time.monotonic()
    failed = False
    unjudged = [] if options.only_times else results.unjudged(chosen)
    todo = unjudged[:]
    if not options.only_verdicts:
        todo += [model for model in results.untimed(chosen) if model not in unjudged]
    for number, model in enumerate(todo):
        if options.seconds is not None and time.monotonic() - started > options.seconds:
            left = len(todo) - number
            print(f"{left} models are left: the same command goes on", file=sys.stderr)
            break
        judged, timed = model in unjudged, not options.only_verdicts
        failed |= _measure(model, results, options.limit if judged else 0, timed)
        if options.json is not None:
            options.page.write_text(page(results), encoding="utf-8")
    if options.json is None and not options.filter:
        options.page.write_text(page(results), encoding="utf-8")
    print(summary(results), file=sys.stderr)
    return int(failed)


def _measure(model: ZooModel, results: Results, limit: float, timed: bool) -> bool:
    """Judge within a limit that is not 0, time, print the row; return whether it fails the run."""
    kept = results.bundle(model)
    with tempfile.TemporaryDirectory() if kept is None else nullcontext(kept.parent) as parent:
        folder = kept or Path(parent) / "bundle"
        folder.parent.mkdir(parents=True, exist_ok=True)
        if limit:
            say = partial(print, file=sys.stderr)
            results.add(model.name, judge(model, folder, say, limit))
        verdict = results.verdicts[model.name]
        if timed and verdict.result == RIGHT:
            results.add(model.name, take_times(model, open_bundle(folder), verdict.code))
    print(line(model, results), flush=True)
    broken = verdict.result.startswith((CRASH, WRONG))
    return broken or (model.must_pass and verdict.result != RIGHT)


if __name__ == "__main__":
    sys.exit(main())
