"""How much faster kernels are than those of an earlier commit.

    python -m benchmarks.since 038b1400 --filter softmax
    python -m benchmarks.since 038b1400 --filter "maximum over all" --filter sine

Networks of `census_networks.py`, built by this checkout and by the commit, are loaded into one
process and take turns on one thread, so that other work of the machine slows both. The fastest
round counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
ROUNDS, SECONDS_A_TURN = 300, 0.001
"""Many short turns: other work of the machine leaves some of them alone."""


def build_all(models: Path, libraries: Path) -> None:
    """Build each model with the edgekit that Python finds: that of the commit, or this one."""
    from edgekit.api.functions import make_request
    from edgekit.building.build import build
    from edgekit.bundle.folder import LIBRARY_NAME
    from edgekit.compiler.schedules.choices import NO_CHOICES

    libraries.mkdir()
    for model in sorted(models.iterdir()):
        request = make_request(model, "local", None, {}, {}, offload=())
        bundle = libraries / f"{model.stem}-bundle"
        build(replace(request, choices=NO_CHOICES), bundle, use_cache=False, isolated=False)
        shutil.copy(bundle / LIBRARY_NAME, libraries / f"{model.stem}.so")


def fastest(libraries: Sequence[Path], model: Path) -> list[float]:
    """Return the seconds of a call of each library in its fastest round."""
    from benchmarks.contenders import aligned
    from edgekit.devices.local.program import Program

    random = np.random.default_rng(0)
    graph = onnx.load(model).graph
    weights = {weight.name for weight in graph.initializer}
    given = [
        aligned(random.standard_normal(_shape(each)).astype("float32"))
        for each in graph.input
        if each.name not in weights
    ]
    programs = [Program(str(library), 1, print) for library in libraries]
    calls = [program.prepare(given) for program in programs]
    for call in calls:
        call()
    times = max(1, round(SECONDS_A_TURN / max(_seconds(calls[0], 1), 1e-7)))
    best = [float("inf")] * len(calls)
    for round_number in range(ROUNDS):
        order = list(range(len(calls)))
        for place in order if round_number % 2 else reversed(order):
            best[place] = min(best[place], _seconds(calls[place], times) / times)
    return best


def _shape(value: onnx.ValueInfoProto) -> list[int]:
    return [each.dim_value for each in value.type.tensor_type.shape.dim]


def _seconds(call: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - started


def _unpacked(commit: str, folder: Path) -> Path:
    """Put the commit's files into a folder."""
    folder.mkdir()
    archive = subprocess.run(
        [
            "git",
            "archive",
            commit,
            "edgekit",
            "boards",
            "toolchains",
            "libraries",
            "pyproject.toml",
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description="kernels against those of an earlier commit")
    parser.add_argument("commit")
    parser.add_argument("--filter", action="append", default=[], help="networks with this in name")
    options = parser.parse_args()
    from benchmarks.census_networks import drawn, tabled
    from benchmarks.models import machine

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = folder / "models"
        models.mkdir()
        names: dict[Path, str] = {}
        for network, write in (*tabled(), *drawn(40, 0)):
            if any(text in network for text in options.filter):
                path = models / f"{len(names):03}.onnx"
                write(path)
                names[path] = network
        trees = {"before": _unpacked(options.commit, folder / "tree"), "after": ROOT}
        for when, tree in trees.items():
            command = [sys.executable, __file__, os.fspath(models), os.fspath(folder / when)]
            environment = {**os.environ, "PYTHONPATH": os.fspath(tree), "TVM_NUM_THREADS": "1"}
            # No edgekit.toml of the checkout is read in another folder.
            subprocess.run(
                command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL
            )
        print(f"| network | {options.commit}, µs | now, µs | ratio |\n|---|---:|---:|---:|")
        for model, network in names.items():
            before, after = fastest([folder / when / f"{model.stem}.so" for when in trees], model)
            print(
                f"| {network} | {1e6 * before:,.1f} | {1e6 * after:,.1f} | {after / before:.2f} |"
            )
        print(f"\nThe fastest of {ROUNDS} alternating rounds. Measured on {machine()}.")
    return 0


if __name__ == "__main__":
    if __package__:
        sys.exit(main())
    build_all(*map(Path, sys.argv[1:]))
