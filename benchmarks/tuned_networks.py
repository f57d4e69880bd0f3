"""What a search makes of whole networks, on one thread, beside the rules alone and onnxruntime."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from benchmarks import networks
from benchmarks.onnxruntime_run import measure as run_onnxruntime
from edgekit.api.functions import make_request
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.building.tuned_kernels import measured_choices
from edgekit.bundle.folder import Bundle
from edgekit.compiler.schedules.choices import NO_CHOICES
from edgekit.devices.base import BenchPlan
from edgekit.devices.local.device import LocalDevice
from edgekit.tuning.tune import TuneReport
from edgekit.verbs.bench import bench

NETWORKS = ("MobileNetV2", "ResNet-18")
_ROUNDS = 5
_SECONDS = 1.0
"""The figure of each of the three in each round."""


@dataclass(frozen=True)
class TunedNetwork:
    """Medians of the rounds, in seconds."""

    name: str
    report: TuneReport
    untuned: tuple[float, ...]
    tuned: tuple[float, ...]
    onnxruntime: tuple[float, ...]

    @property
    def to_untuned(self) -> float:
        """Below 1, tuned is faster."""
        return _ratio(self.tuned, self.untuned)

    @property
    def to_onnxruntime(self) -> float:
        return _ratio(self.tuned, self.onnxruntime)

    def in_words(self) -> str:
        report = self.report
        better = sum(kernel.choice is not None for kernel in report.kernels)
        slower = sum(kernel.gain < 1 for kernel in report.kernels)
        return (
            f"{self.name}: {_milliseconds(self.untuned)} ms untuned, {_milliseconds(self.tuned)} "
            f"tuned, {_milliseconds(self.onnxruntime)} onnxruntime; tuned takes "
            f"{self.to_untuned:.2f} of untuned, {self.to_onnxruntime:.2f} of onnxruntime; "
            f"{better} of {len(report.kernels)} kernels better, {slower} slower; "
            f"{report.trials} trials in {report.seconds:.0f} s, ended: {report.ended}"
        )


def tuned_network(
    name: str, folder: Path, search: Callable[[BuildRequest], TuneReport]
) -> TunedNetwork:
    path = folder / f"{name}.onnx"
    onnx.save(networks.build(name), path)
    request = _for_one_core(make_request(path, "local", None, {}, {}, offload=()))
    report = search(request)
    rules = _built(replace(request, choices=NO_CHOICES), folder / f"{name}-rules")
    found = measured_choices(request.board.target)
    best = _built(replace(request, choices=found), folder / f"{name}-tuned")
    plan = BenchPlan(warmup=2, runs=3, seconds=_SECONDS, threads=1)
    inputs = rules.reference_inputs()
    untuned, tuned, theirs = [], [], []
    for _ in range(_ROUNDS):  # in turns, so that a busy moment of the machine hits all
        untuned.append(bench(rules, LocalDevice(), plan).median)
        tuned.append(bench(best, LocalDevice(), plan).median)
        theirs.append(statistics.median(run_onnxruntime(path, inputs, 1, _SECONDS).seconds))
    return TunedNetwork(name, report, tuple(untuned), tuple(tuned), tuple(theirs))


def verdict(found: Sequence[TunedNetwork]) -> str:
    """Over all networks."""
    untuned = statistics.geometric_mean([one.to_untuned for one in found])
    theirs = statistics.geometric_mean([one.to_onnxruntime for one in found])
    return f"geometric mean: {untuned:.2f} of untuned, {theirs:.2f} of onnxruntime"


def _for_one_core(request: BuildRequest) -> BuildRequest:
    """A target of its own: kernels for one core are not searched for as those for all are."""
    board = request.board
    return replace(request, board=replace(board, target=replace(board.target, cores=1)))


def _built(request: BuildRequest, folder: Path) -> Bundle:
    return build(request, folder, use_cache=False).bundle


def _ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, others, strict=True))


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.3g}"
