"""How many instructions one inference takes on an emulated board whose clock counts them.

    python -m benchmarks.cpu --counts rpi4 --filter MobileNetV2

One thread. edgekit's own schedules, and beside them ncnn inside edgekit's library, where it was
built for the board (`edgekit toolchains build rpi4`), and onnxruntime's aarch64 wheel. Instructions
are not time: caches, and how many instructions a core starts at once, are not in them. A busy
machine changes nothing in them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.onnxruntime_board import BoardRunner, prepare
from edgekit.api.functions import make_request
from edgekit.base.errors import EdgekitError
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import open_bundle
from edgekit.compiler.schedules.choices import NO_CHOICES
from edgekit.devices.base import BenchPlan
from edgekit.devices.device import Device
from edgekit.devices.emulated import emulated_device
from edgekit.models.model import ModelSource
from edgekit.profiles.board import load_board
from edgekit.twin.machine import StartOptions, down, up
from edgekit.verbs.bench import bench

TWIN = "benchmark-counts"
PLAN = BenchPlan(warmup=1, runs=2, seconds=0.0, threads=1)
LONGEST_SECONDS = 3600.0


@dataclass(frozen=True)
class Counted:
    network: str
    own: float | None
    """Instructions of one inference: nanoseconds of a clock that goes on by one for each."""
    ncnn: float | None
    onnxruntime: float | None = None


@dataclass(frozen=True)
class Twin:
    board: str
    device: Device
    onnxruntime: BoardRunner


@contextmanager
def counting_twin(board_name: str, folder: Path) -> Iterator[Twin]:
    board = load_board(board_name)
    try:
        access = up(TWIN, board, StartOptions(fresh=True, icount=True)).access
        device = emulated_device(TWIN, board, LONGEST_SECONDS)
        yield Twin(board_name, device, prepare(access, board, folder))
    finally:
        down(TWIN, delete=True)


def count(
    network: str, source: ModelSource, twin: Twin, folder: Path, say: Callable[[str], None]
) -> Counted:
    request = make_request(source.path, twin.board, None, source.shapes, {}, offload=())
    own = _instructions(request, twin, folder / f"{network}-own", say)
    with_ncnn = make_request(source.path, twin.board, None, source.shapes, {}, offload=("ncnn",))
    ncnn = _instructions(with_ncnn, twin, folder / f"{network}-ncnn", say)
    say(f"{network}: counting onnxruntime's")
    other: float | None = None
    try:
        bundle = open_bundle(folder / f"{network}-own")
        other = twin.onnxruntime.nanoseconds(source.path, bundle)
    except (EdgekitError, RuntimeError) as error:
        say(f"{network}: {error}")
    return Counted(network, own, ncnn, other)


def _instructions(
    request: BuildRequest, twin: Twin, out: Path, say: Callable[[str], None]
) -> float | None:
    try:
        bundle = build(replace(request, choices=NO_CHOICES), out).bundle
        say(f"{out.name}: counting")
        report = bench(bundle, twin.device, PLAN)
    except EdgekitError as error:
        say(f"{out.name}: {error.message}")
        return None
    return report.median * 1e9


def counts_in_words(counted: Sequence[Counted], board_name: str) -> str:
    lines = [
        f"| network | edgekit, million instructions on {board_name} | ncnn inside | ratio "
        "| onnxruntime | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for one in counted:
        cells = [one.network, _millions(one.own)]
        for other in (one.ncnn, one.onnxruntime):
            cells += [_millions(other), _ratio(one.own, other)]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, pairs in (
        ("ncnn", [(one.own, one.ncnn) for one in counted]),
        ("onnxruntime", [(one.own, one.onnxruntime) for one in counted]),
    ):
        ratios = [own / other for own, other in pairs if own is not None and other is not None]
        if ratios:
            mean, most = statistics.geometric_mean(ratios), max(ratios)
            lines.append(
                f"Geometric mean of the ratios to {name}: {mean:.2f}, the largest {most:.2f}."
            )
    return "\n".join(lines) + "\n"


def _ratio(own: float | None, other: float | None) -> str:
    return "–" if own is None or other is None else f"{own / other:.2f}"


def _millions(instructions: float | None) -> str:
    return "–" if instructions is None else f"{instructions / 1e6:.0f}"
