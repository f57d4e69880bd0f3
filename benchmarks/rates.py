"""The numbers with which docs/offload.md reckons, measured on this machine for ncnn and for TVM.

    python -m benchmarks.rates        # --filter NAME

Networks that are one region in ncnn, and the same compiled by TVM alone: billions of
multiply-accumulates a second of either, on one thread, in turns. Then what a region costs beside
its arithmetic: entering it (a tiny layer, against TVM's call of the same), and moving megabytes
through it. The last lines are a table for a board's profile or for edgekit.toml.

They are this machine's. For a board, `edgekit partition --measure` asks the board itself.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.byoc import EVERYTHING_PAYS, bundled, shape_of, source_of
from benchmarks.contenders import Runtime, Turn, loaded
from benchmarks.models import machine
from edgekit.api.functions import make_request
from edgekit.backends.base import Region
from edgekit.backends.plan import OffloadPlan
from edgekit.base.events import SILENT
from edgekit.building.partition import decide

NAMES = ("MobileNetV2", "ResNet-18", "SqueezeNet", "AlexNet", "RetinaFace", "YOLOv8n")
NCNN, TVM = "ncnn", "TVM"
ROUNDS, SECONDS = 7, 0.5
TINY, WIDE = 4, 1024


@dataclass(frozen=True)
class Row:
    network: str
    macs: int
    ncnn: float
    """Median seconds."""
    tvm: float


def measure(
    model: Path, shapes: Mapping[str, tuple[int, ...]], folder: Path
) -> tuple[Region, float, float]:
    """The region that is the whole model, and the seconds of ncnn and of TVM."""
    plain = make_request(model, "local", None, shapes, {}, offload=())
    options = {"ncnn": {"non_finite": "pass"}}
    plan = OffloadPlan(("ncnn",), options=options, rates=EVERYTHING_PAYS)
    offloaded = replace(plain, offload=plan)
    (region,) = decide(offloaded, SILENT).regions
    runtimes: dict[str, Runtime] = {
        NCNN: bundled(offloaded, (region,), folder / "ncnn"),
        TVM: bundled(plain, (), folder / "tvm"),
    }
    given = np.random.default_rng(0).uniform(-1, 1, shape_of(model, shapes)).astype("float32")
    turns: dict[str, list[Turn]] = {name: [] for name in runtimes}
    with loaded(runtimes, given) as processes:
        for number in range(ROUNDS):
            order = list(processes.items())
            for name, process in order if number % 2 else reversed(order):
                turns[name].append(process.turn(SECONDS))
    medians = {
        name: statistics.median(turn.wall for turn in found) for name, found in turns.items()
    }
    return region, medians[NCNN], medians[TVM]


def one_layer(extent: int, path: Path, weighted: bool) -> Path:
    """A convolution of a pixel each, or a ReLU, over four channels."""
    shape = [1, 4, extent, extent]
    weight = numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")
    node = (
        helper.make_node("Conv", ["x", "w"], ["y"])
        if weighted
        else helper.make_node("Relu", ["x"], ["y"])
    )
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [weight] if weighted else [],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def show(rows: Sequence[Row]) -> tuple[float, float]:
    """The table; the medians of both rates."""
    print("| network | MACs | ncnn ms | TVM ms | ncnn GMAC/s | TVM GMAC/s |")
    print("|---|---|---|---|---|---|")
    rates = [(row.macs / row.ncnn / 1e9, row.macs / row.tvm / 1e9) for row in rows]
    for row, (ncnn, tvm) in zip(rows, rates, strict=True):
        cells = [row.network, f"{row.macs / 1e6:.0f} M", f"{1e3 * row.ncnn:.3g}"]
        cells += [f"{1e3 * row.tvm:.3g}", f"{ncnn:.3g}", f"{tvm:.3g}"]
        print("| " + " | ".join(cells) + " |")
    return statistics.median(a for a, _ in rates), statistics.median(b for _, b in rates)


def main() -> int:
    parser = argparse.ArgumentParser(description="what offloading reckons with, measured")
    parser.add_argument("--filter", default="", help="only networks whose name contains this")
    options = parser.parse_args()
    rows = []
    for name in NAMES:
        if options.filter.lower() not in name.lower():
            continue
        print(f"{name} ...", file=sys.stderr)
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            region, ncnn, tvm = measure(*source_of(name, folder), folder)
        rows.append(Row(name, region.macs, ncnn, tvm))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for part in ("tiny", "wide"):
            (folder / part).mkdir()
        tiny = measure(one_layer(TINY, folder / "tiny.onnx", weighted=True), {}, folder / "tiny")
        wide = measure(one_layer(WIDE, folder / "wide.onnx", weighted=False), {}, folder / "wide")
    library_rate, tvm_rate = show(rows)
    moved = wide[0].boundary_bytes
    print(f"\nA region of one tiny layer: {1e6 * tiny[1]:.1f} µs, TVM's {1e6 * tiny[2]:.1f} µs.")
    print(
        f"{moved / 1e6:.0f} MB through a region: {1e3 * wide[1]:.2f} ms, "
        f"through TVM's kernel {1e3 * wide[2]:.2f} ms."
    )
    print(f"\nMeasured on {machine()}.\n\n[offload.cost]")
    print(f"call_us = {max(0.0, 1e6 * (tiny[1] - tiny[2])):.1f}")
    print(f"copy_gb_s = {moved / 1e9 / max(wide[1] - wide[2], 1e-9):.3g}")
    print(f"tvm_gmac_s = {tvm_rate:.3g}\nlibrary_gmac_s = {library_rate:.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
