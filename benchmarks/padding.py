"""What padding costs: a program for sizes up to the largest, beside one that is built for the size.

    python -m benchmarks.padding                   # a table, on this machine
    python -m benchmarks.padding --largest 512

Both run one after the other on one thread, in rounds. The ratio is that of the medians of a round:
its median over the rounds, and in brackets the lowest and the highest.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.api.device import cut_inputs
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan

WIDTH, HEADS, LAYERS = 64, 4, 2
ROUNDS = 5
PLAN = BenchPlan(warmup=3, runs=20, seconds=0.2, threads=1)


class Writer:
    """Nodes of a graph, and its weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def dense(self, value: str, inner: int, outer: int) -> str:
        weight = self._random.standard_normal((inner, outer)) / inner**0.5
        return self.node("MatMul", value, self.constant(weight.astype(np.float32)))

    def write(self, result: str, path: Path) -> None:
        shape = [1, "length", WIDTH]
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", result)
        ]
        graph = helper.make_graph(self.nodes, path.stem, ends[:1], ends[1:], self.weights)
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def encoder(path: Path) -> None:
    net, value = Writer(), "x"
    ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    split = net.constant(np.array([0, 0, HEADS, WIDTH // HEADS]))
    whole = net.constant(np.array([0, 0, WIDTH]))
    scale = net.constant(np.float32((WIDTH // HEADS) ** -0.5))
    for _ in range(LAYERS):
        parts = [net.node("Reshape", net.dense(value, WIDTH, WIDTH), split) for _ in range(3)]
        q, v = (net.node("Transpose", parts[i], perm=[0, 2, 1, 3]) for i in (0, 2))
        k = net.node("Transpose", parts[1], perm=[0, 2, 3, 1])
        scores = net.node("Softmax", net.node("Mul", net.node("MatMul", q, k), scale), axis=-1)
        seen = net.node("Transpose", net.node("MatMul", scores, v), perm=[0, 2, 1, 3])
        out = net.dense(net.node("Reshape", seen, whole), WIDTH, WIDTH)
        norm = (net.constant(ones), net.constant(zeros))
        value = net.node("LayerNormalization", net.node("Add", value, out), *norm)
        wide = net.node("Relu", net.dense(value, WIDTH, 4 * WIDTH))
        both = net.node("Add", value, net.dense(wide, 4 * WIDTH, WIDTH))
        value = net.node("LayerNormalization", both, *norm)
    net.write(value, path)


def dense(path: Path) -> None:
    net, value = Writer(), "x"
    for _ in range(4):
        value = net.node("Relu", net.dense(value, WIDTH, WIDTH))
    net.write(value, path)


NETWORKS = {"encoder": encoder, "dense layers": dense}


def rows(largest: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="edgekit-padding-") as name:
        folder = Path(name)
        ws = edgekit.Workspace(folder)

        def built(model: Path, size: str) -> Bundle:
            shapes = {"x": f"1x{size}x{WIDTH}"}
            return ws.build(model, f"{model.stem}-{size}", board="local", shapes=shapes)

        for words, write in NETWORKS.items():
            model = folder / f"{words.replace(' ', '-')}.onnx"
            write(model)
            ranged = built(model, f"(1..{largest})")
            for size in (largest // 16, 3 * largest // 32, largest // 4, 3 * largest // 8, largest):
                fixed = built(model, str(size))
                yield row(ws, words, size, (ranged, fixed))


def row(ws: edgekit.Workspace, words: str, size: int, bundles: tuple[Bundle, Bundle]) -> str:
    ranged, fixed = bundles
    given = (cut_inputs(ranged, {"x": (1, size, WIDTH)}, None), fixed.reference_inputs())
    times: list[tuple[float, float]] = []
    with ExitStack() as opened:
        sessions = [opened.enter_context(ws.opened(each, device="local")) for each in bundles]
        for _ in range(ROUNDS):
            samples = [
                one.session.bench(inputs, PLAN) for one, inputs in zip(sessions, given, strict=True)
            ]
            first, second = (statistics.median(each.nanoseconds) / 1e3 for each in samples)
            times.append((first, second))
    ratios = sorted(first / second for first, second in times)
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"| {words} | {size} | {medians[0]:.1f} | {medians[1]:.1f} | {spread} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=128, help="the largest size of the range")
    largest = parser.parse_args().largest
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, one thread, load {os.getloadavg()[0]:.1f}")
    print()
    print(f"| network | size | built for 1 to {largest}, µs | built for the size, µs | ratio |")
    print("|---|---:|---:|---:|---:|")
    for line in rows(largest):
        print(line, flush=True)


if __name__ == "__main__":
    main()
