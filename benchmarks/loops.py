"""What a recurrent layer costs as a loop: to build, and to run beside itself written out and
onnxruntime, on one thread.

    python -m benchmarks.loops                  # as a table
    python -m benchmarks.loops --write-out 64   # up to which length it is written out, too

Each row is built in a process of its own; its seconds are those of the CPU from the import to the
linked library, imports of packages included. Runs alternate; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.base.events import SILENT

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
INPUTS = 32
TRIES = 200


@dataclass(frozen=True)
class Layer:
    operator: str
    steps: int
    hidden: int
    directions: int = 1

    @property
    def words(self) -> str:
        way = "bidirectional " if self.directions == 2 else ""
        return f"{way}{self.operator}, {self.steps:,} steps, hidden {self.hidden}"

    def write(self, path: Path) -> None:
        random = np.random.default_rng(0)
        rows = GATES[self.operator] * self.hidden
        shapes = {"w": (rows, INPUTS), "r": (rows, self.hidden), "b": (2 * rows,)}
        weights = [
            numpy_helper.from_array(
                (random.standard_normal((self.directions, *shape)) / 8).astype("float32"), name
            )
            for name, shape in shapes.items()
        ]
        node = helper.make_node(
            self.operator,
            ["x", *shapes],
            ["y"],
            "layer",
            hidden_size=self.hidden,
            direction="bidirectional" if self.directions == 2 else "forward",
        )
        value = helper.make_tensor_value_info
        given = value("x", TensorProto.FLOAT, [self.steps, 1, INPUTS])
        graph = helper.make_graph(
            [node], "layer", [given], [value("y", TensorProto.FLOAT, None)], weights
        )
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


LAYERS = (
    Layer("LSTM", 64, 64),
    Layer("LSTM", 1000, 64),
    Layer("LSTM", 1000, 256),
    Layer("LSTM", 256, 64, 2),
    Layer("GRU", 64, 64),
    Layer("GRU", 1000, 64),
    Layer("RNN", 64, 64),
)


def build(model: Path, folder: Path, *, written_out: bool) -> None:
    """Build a library, and print what that took."""
    from edgekit.backends.offloading import compile_model
    from edgekit.building.expectation import Expectation
    from edgekit.building.product import Making
    from edgekit.building.products import product_of
    from edgekit.building.products.library import write_objects
    from edgekit.building.request import BuildRequest
    from edgekit.cross.toolchain import find_compiler
    from edgekit.models import control
    from edgekit.models.model import import_model, open_model
    from edgekit.profiles.board import load_board
    from edgekit.profiles.toolchain import load_toolchain

    if written_out:
        control.SHORT_LOOP = sys.maxsize
    source, board = open_model(model), load_board("local")
    compiled = compile_model(import_model(source), board.target, linked=True)
    objects = write_objects(compiled, board.target, (), folder)
    toolchain = load_toolchain(board.toolchain)
    place = folder / "library"
    place.mkdir()
    request = BuildRequest(source, board, toolchain)
    making = Making(product_of(board), request, find_compiler(toolchain), place, folder, SILENT)
    objects.finish(making, Expectation(None, ()))
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    print(json.dumps({"seconds": seconds, "mebibytes": own.ru_maxrss / 1024}))


@dataclass(frozen=True)
class Built:
    library: Path
    seconds: float
    mebibytes: float


def built(model: Path, folder: Path, *options: str) -> Built:
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.loops", "--build", str(model), str(folder)]
    said = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=True)
    return Built(folder / "library" / "model.so", **json.loads(said.stdout.splitlines()[-1]))


def medians(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the median microseconds of each call; calls alternate."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(TRIES):
        for call, own in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            own.append((time.perf_counter() - begin) * 1e6)
    return [statistics.median(own) for own in times]


def row(layer: Layer, place: Path, *, write_out: bool) -> str:
    """Build a layer and time it; return a row of the table."""
    import onnxruntime

    from edgekit.devices.local.program import Program

    model = place / f"{layer.operator}-{layer.steps}-{layer.hidden}-{layer.directions}.onnx"
    layer.write(model)
    loop = built(model, model.with_suffix(".loop"))
    x = np.random.default_rng(1).standard_normal((layer.steps, 1, INPUTS)).astype("float32")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    libraries = [loop.library]
    out = built(model, model.with_suffix(".out"), "--written-out") if write_out else None
    libraries += [out.library] if out is not None else []
    programs = [Program(str(library), 1, print) for library in libraries]
    calls = [program.prepare([x]) for program in programs]
    own, *others, judge = medians([*calls, lambda: session.run(None, {"x": x})])
    before = (
        "– | – | –"
        if out is None
        else f"{out.seconds:.1f} s | {out.mebibytes:,.0f} MiB | {own / others[0]:.2f}"
    )
    return (
        f"| {layer.words} | {loop.seconds:.1f} s | {loop.mebibytes:,.0f} MiB | {own:,.0f} µs | "
        f"{own / judge:.2f} | {before} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write-out", type=int, default=64, metavar="STEPS")
    parser.add_argument("--build", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--written-out", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.build is not None:
        build(*given.build, written_out=given.written_out)
        return
    print("| layer | build | memory | run | of onnxruntime's | written out: build | memory | run |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for layer in LAYERS:
            print(row(layer, Path(folder), write_out=layer.steps <= given.write_out), flush=True)


if __name__ == "__main__":
    main()
