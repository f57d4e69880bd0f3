"""How many instructions one inference takes on an emulated board whose clock counts them.

    python -m benchmarks.cpu --counts rpi4 --filter MobileNetV2

One thread. edgekit's own schedules, and ncnn inside edgekit's library beside them where it was
built for the board (`edgekit toolchains build rpi4`). Instructions are not time: caches, and how
many instructions a core starts at once, are not in them. A busy machine changes nothing in them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.bench import bench
from edgekit.board import load_board
from edgekit.build import BuildRequest, build
from edgekit.cross.toolchain import load_toolchain
from edgekit.devices.base import BenchPlan, Device
from edgekit.devices.emulated import emulated_device
from edgekit.errors import EdgekitError
from edgekit.model import ModelSource
from edgekit.request import make_request
from edgekit.schedules.choices import NO_CHOICES
from edgekit.twin.machine import down, up

TWIN = "benchmark-counts"
PLAN = BenchPlan(warmup=1, runs=2, seconds=0.0, threads=1)
LONGEST_SECONDS = 3600.0


@dataclass(frozen=True)
class Counted:
    network: str
    own: float | None
    """Instructions of one inference: nanoseconds of a clock that goes on by one for each."""
    ncnn: float | None
    problem: str = ""


@contextmanager
def counting_twin(board_name: str) -> Iterator[Device]:
    board = load_board(board_name)
    try:
        up(TWIN, board, fresh=True, icount=True)
        yield emulated_device(TWIN, board, load_toolchain(board.toolchain), LONGEST_SECONDS)
    finally:
        down(TWIN, delete=True)


def count(
    network: str,
    source: ModelSource,
    device: Device,
    board_name: str,
    folder: Path,
    say: Callable[[str], None],
) -> Counted:
    request = make_request(source.path, board_name, None, source.shapes, {}, offload=())
    own, problem = _instructions(request, device, folder / f"{network}-own", say)
    with_ncnn = make_request(source.path, board_name, None, source.shapes, {}, offload=("ncnn",))
    ncnn, _ = _instructions(with_ncnn, device, folder / f"{network}-ncnn", say)
    return Counted(network, own, ncnn, problem)


def _instructions(
    request: BuildRequest, device: Device, out: Path, say: Callable[[str], None]
) -> tuple[float | None, str]:
    try:
        bundle = build(replace(request, choices=NO_CHOICES), out).bundle
        say(f"{out.name}: counting")
        report = bench(bundle, device, PLAN)
    except EdgekitError as error:
        say(f"{out.name}: {error.message}")
        return None, error.message
    return report.median * 1e9, ""


def counts_in_words(counted: Sequence[Counted], board_name: str) -> str:
    lines = [
        f"| network | edgekit, million instructions on {board_name} | ncnn inside | ratio |",
        "|---|---|---|---|",
    ]
    ratios = []
    for one in counted:
        cells = [one.network, _millions(one.own), _millions(one.ncnn), "–"]
        if one.own is not None and one.ncnn is not None:
            ratios.append(one.own / one.ncnn)
            cells[-1] = f"{ratios[-1]:.2f}"
        lines.append("| " + " | ".join(cells) + " |")
    if ratios:
        lines += ["", f"Geometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}."]
    return "\n".join(lines) + "\n"


def _millions(instructions: float | None) -> str:
    return "–" if instructions is None else f"{instructions / 1e6:.0f}"
