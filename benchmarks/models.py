"""Real trained models through edgekit on this machine, compared with their own runtimes.

    python -m benchmarks.models --json run.json      # all of them; writes docs/models.md
    python -m benchmarks.models --json run.json --seconds 1500    # so long; and again: goes on
    python -m benchmarks.models --filter mlperf      # some of them; prints only

With `--json` each row is kept as soon as it is measured, with a digest of the code that it judges:
the same command goes on with what is missing there or is of other code, the oldest rows last.
Each model is imported, built for the board `local`, run on seeded inputs, compared with its oracle,
and timed against the oracle's fast kernels: both on one thread, in turns, in one sitting. Models
that fail stay in the table with their reason.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import figures
from benchmarks.model_zoo import MODELS, ZooModel, fetch
from edgekit.advice.summary import summarise
from edgekit.api.functions import make_request
from edgekit.base.arrays import Array
from edgekit.base.errors import EdgekitError
from edgekit.base.files import write_atomically
from edgekit.base.tensors import TensorSpec
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.local.device import LocalDevice
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import ModelSource, open_model, scan_model
from edgekit.models.oracle import oracle_for
from edgekit.models.oracle_types import Oracle
from edgekit.verbs.bench import bench

DOCS = Path(__file__).resolve().parent.parent / "docs" / "models.md"
SEEDS = 10
ROUNDS = 5
JUDGED = ("edgekit/compiler", "edgekit/models")
"""The code whose figures these are."""
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


@dataclass(frozen=True)
class Timing:
    edgekit: float
    """Median seconds."""
    ratios: tuple[float, ...]
    """The ratios of edgekit's median to the oracle's, one a round."""

    def __str__(self) -> str:
        low, high = min(self.ratios), max(self.ratios)
        return f"{statistics.median(self.ratios):.2f} ({low:.2f} to {high:.2f})"


@dataclass(frozen=True)
class Row:
    model: ZooModel
    format: str
    operators: int
    kinds: int
    parameters: int
    macs: int | None
    result: str
    error: Error | None = None
    agreed: int | None = None
    build_seconds: float | None = None
    timing: Timing | None = None


def measure(model: ZooModel, say: Callable[[str], None]) -> Row:
    say(f"{model.name}: fetching")
    source = open_model(fetch(model), model.shapes)
    say(f"{model.name}: building")
    scan = scan_model(source)
    facts = (
        model,
        describe_format(source),
        sum(entry.count for entry in scan.operators),
        len(scan.operators),
        scan.parameters,
    )
    try:
        request = make_request(source.path, "local", None, model.shapes, {})
        macs = _macs(source)
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            bundle = build(request, Path(folder) / "bundle", use_cache=False).bundle
            seconds = time.perf_counter() - started
            say(f"{model.name}: comparing")
            error, agreed = compare(model, request, bundle)
            say(f"{model.name}: timing")
            timing = take_times(model, request, bundle)
    except EdgekitError as failure:
        return Row(*facts, None, failure.message)
    return Row(*facts, macs, "ok", error, agreed, seconds, timing)


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
    """Seeded inputs; integers over the model's whole vocabulary."""
    inputs = reference_inputs(specs, seed)
    if model.tokens:
        source = np.random.default_rng(seed)
        for spec in specs:
            inputs[spec.name] = source.integers(0, model.tokens, spec.shape).astype(spec.dtype)
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
    largest = float(np.abs(found.astype("float64") - wanted).max())
    if spec.quantization is not None:
        return Error(0.0, int(largest))
    return Error(largest / max(float(np.abs(wanted).max()), 1e-30), None)


def take_times(model: ZooModel, request: BuildRequest, bundle: Bundle) -> Timing:
    """edgekit and the oracle in turns, so that a busy moment of the machine hits both."""
    oracle: Oracle = oracle_for(request.source)
    sample = inputs_for(model, [entry.spec for entry in bundle.manifest.inputs], 0)
    ours, ratios = [], []
    for _ in range(ROUNDS):
        mine = bench(bundle, LocalDevice(), PLAN).median
        theirs = statistics.median(
            oracle.time(sample, threads=1, runs=max(5, int(PLAN.seconds / mine)))
        )
        ours.append(mine)
        ratios.append(mine / theirs)
    return Timing(statistics.median(ours), tuple(ratios))


@dataclass(frozen=True)
class Kept:
    """A row of the table as it is printed, and what it was measured with."""

    name: str
    cells: tuple[str, ...]
    code: str
    day: str
    machine: str

    @property
    def result(self) -> str:
        return self.cells[5]


class Results:
    """The rows measured so far, in a file if one is named."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.rows: dict[str, Kept] = {}
        if file is not None and file.is_file():
            for row in json.loads(file.read_text(encoding="utf-8")):
                self.rows[row["name"]] = Kept(**{**row, "cells": tuple(row["cells"])})

    def add(self, row: Row) -> Kept:
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        kept = Kept(row.model.name, tuple(_cells(row)), code(), today, machine())
        self.rows[kept.name] = kept
        if self._file is not None:
            rows = [asdict(each) for each in self.rows.values()]
            write_atomically(self._file, json.dumps(rows, indent=1) + "\n")
        return kept

    def is_new(self, model: ZooModel) -> bool:
        return model.name in self.rows and self.rows[model.name].code == code()

    def missing(self, models: Sequence[ZooModel]) -> list[ZooModel]:
        """Return the models to measure: first those without a row, then those of other code."""
        stale = [model for model in models if not self.is_new(model)]
        return sorted(stale, key=lambda model: model.name in self.rows)


def code() -> str:
    return " ".join(figures.digest(figures.ROOT / folder) for folder in JUDGED)


def page(results: Results) -> str:
    """Return the page with all rows. It is dated where every row is of today's code."""
    rows = [results.rows[model.name] for model in MODELS if model.name in results.rows]
    days = sorted(row.day for row in rows)
    header = figures.header("python -m benchmarks.models", JUDGED, days[0])
    if results.missing(MODELS):
        header = figures.undated(header)
    waiting = [model.name for model in MODELS if model.name not in results.rows]
    text = PREAMBLE.format(seeds=SEEDS, rounds=ROUNDS, machine=rows[-1].machine, header=header)
    left_out = f"\nNot measured yet: {', '.join(waiting)}.\n" if waiting else ""
    return text + table([row.cells for row in rows]) + left_out


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = [
        "| model | format | operators (kinds) | parameters | MACs | result | largest error "
        "| same answer | build s | edgekit ms | edgekit / oracle |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    return [
        row.model.name,
        row.format,
        f"{row.operators} ({row.kinds})",
        _millions(row.parameters),
        "–" if row.macs is None else _millions(row.macs),
        row.result,
        "–" if row.error is None else str(row.error),
        "–" if row.agreed is None else f"{row.agreed} of {SEEDS}",
        "–" if row.build_seconds is None else f"{row.build_seconds:.1f}",
        "–" if row.timing is None else f"{row.timing.edgekit * 1e3:.3g}",
        "–" if row.timing is None else str(row.timing),
    ]


def _millions(number: int) -> str:
    return f"{number / 1e6:.3g} M"


PREAMBLE = """# Real models

`python -m benchmarks.models` prints and writes this table. The models come out of Python packages
of the package index, at pinned versions with pinned hashes (`benchmarks/model_zoo.py`); the
packages are neither installed nor run.

Each model is built for the board `local` without tuning, run on {seeds} seeded inputs and compared
with the runtime of its own format: onnxruntime with every optimisation off, LiteRT's reference
kernels, PyTorch. *Largest error*: over all elements, outputs and inputs, relative to the largest
element of the expected tensor, or in output steps (LSB) where outputs are quantised. *Same answer*:
how often the highest class was the same. *edgekit / oracle*: the ratio of the median times of
edgekit and of the oracle's fast kernels (all optimisations on), both on one thread, taken in turns
in {rounds} rounds: the median round and, in brackets, the lowest and the highest. Above 1, the
oracle is faster.

Where a model's largest outputs are themselves tiny (PP-OCRv4 on inputs that show no text: 6e-5), a
large relative error is a small one: `edgekit verify` judges by docs/verify.md.

{header}
Measured on {machine}.

"""


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
    options = parser.parse_args(arguments)
    chosen = [model for model in MODELS if options.filter.lower() in model.name.lower()]
    results = Results(options.json)
    started = time.monotonic()
    done: list[Kept] = []
    must_pass = {model.name for model in MODELS if model.must_pass}
    for model in results.missing(chosen):
        if options.seconds is not None and time.monotonic() - started > options.seconds:
            break
        done.append(results.add(_row(model)))
        print("| " + " | ".join(done[-1].cells) + " |", flush=True)
        if options.json is not None:
            options.page.write_text(page(results), encoding="utf-8")
    if options.json is None and not options.filter:
        options.page.write_text(page(results), encoding="utf-8")
    left = len(results.missing(chosen))
    if left:
        print(f"{left} of {len(chosen)} models are left: the same command goes on", file=sys.stderr)
    failed = [
        row
        for row in done
        if row.result.startswith("CRASH") or (row.name in must_pass and row.result != "ok")
    ]
    return int(bool(failed))


def _row(model: ZooModel) -> Row:
    """Measure a model; a failure or crash is a row of the table."""
    format = model.file.rpartition(".")[2]
    try:
        return measure(model, lambda text: print(text, file=sys.stderr))
    except EdgekitError as failure:
        return Row(model, format, 0, 0, 0, None, failure.message)
    except Exception as crash:  # noqa: BLE001 - a crash is a row of the table, and fails the run
        traceback.print_exc()
        return Row(model, format, 0, 0, 0, None, f"CRASH: {type(crash).__name__}")


if __name__ == "__main__":
    sys.exit(main())
