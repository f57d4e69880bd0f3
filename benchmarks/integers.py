"""Dynamically quantised and weight-only models against onnxruntime, in alternating rounds.

    python -m benchmarks.integers                # --filter NAME, --rounds 7, --kernels

Networks have random weights and the shapes of well-known ones, two layers deep, and are quantised
by onnxruntime's own `quantize_dynamic`; weights that are only stored as integers are rounded here.
One thread, each runtime in a process of its own. Ratios are edgekit's time to onnxruntime's of the
same round.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from benchmarks.contenders import Bundled, OnnxRuntime, Runtime, loaded
from benchmarks.kernel_work import work_of_steps
from benchmarks.networks import Writer
from edgekit.api.functions import make_request
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import LIBRARY_NAME, Bundle
from edgekit.compiler.schedules.choices import NO_CHOICES
from edgekit.devices.base import BenchPlan
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import import_model
from edgekit.verbs.bench import bench

SECONDS_A_TURN = 0.4


class Layers(Writer):
    """Layers of transformers and recurrent networks, with weights as exporters write them."""

    def product(self, value: str, inputs: int, outputs: int) -> str:
        weight = self._random.standard_normal((inputs, outputs)) * math.sqrt(1 / inputs)
        return str(self.node("MatMul", [value, self.constant(weight.astype("float32"))]))

    def dense_with_bias(self, value: str, inputs: int, outputs: int) -> str:
        bias = self.constant(self._random.standard_normal(outputs).astype("float32") * 0.1)
        return str(self.node("Add", [self.product(value, inputs, outputs), bias]))

    def scalar(self, number: float) -> str:
        return self.constant(np.array(number, "float32"))

    def rms_norm(self, value: str, width: int) -> str:
        squared = self.node("Pow", [value, self.scalar(2.0)])
        mean = self.node("ReduceMean", [squared], axes=[-1], keepdims=1)
        root = self.node("Sqrt", [self.node("Add", [mean, self.scalar(1e-6)])])
        normal = self.node("Div", [value, root])
        return str(self.node("Mul", [normal, self.constant(np.ones(width, "float32"))]))

    def layer_norm(self, value: str, width: int) -> str:
        ones, zeros = np.ones(width, "float32"), np.zeros(width, "float32")
        inputs = [value, self.constant(ones), self.constant(zeros)]
        return str(self.node("LayerNormalization", inputs, axis=-1))

    def attention(
        self, value: str, tokens: int, width: int, heads: int, dense: Callable[..., str]
    ) -> str:
        each = width // heads

        def apart(order: list[int]) -> str:
            shape = self.constant(np.array([1, tokens, heads, each], "int64"))
            split = self.node("Reshape", [dense(value, width, width), shape])
            return str(self.node("Transpose", [split], perm=order))

        query, key, values = apart([0, 2, 1, 3]), apart([0, 2, 3, 1]), apart([0, 2, 1, 3])
        scores = self.node("Mul", [self.node("MatMul", [query, key]), self.scalar(each**-0.5)])
        mixed = self.node("MatMul", [self.node("Softmax", [scores], axis=-1), values])
        joined = self.node("Transpose", [mixed], perm=[0, 2, 1, 3])
        shape = self.constant(np.array([1, tokens, width], "int64"))
        return dense(self.node("Reshape", [joined, shape]), width, width)


def t5(layers: int = 2, tokens: int = 128) -> onnx.ModelProto:
    """Build an encoder like T5-small's, from embeddings."""
    width, heads, inner = 512, 8, 2048
    net = Layers((1, tokens, width))
    value = "image"
    for _ in range(layers):
        normal = net.rms_norm(value, width)
        value = net.node("Add", [value, net.attention(normal, tokens, width, heads, net.product)])
        wide = net.node("Relu", [net.product(net.rms_norm(value, width), width, inner)])
        value = net.node("Add", [value, net.product(wide, inner, width)])
    return net.finish(net.rms_norm(value, width))


def minilm(layers: int = 2, tokens: int = 128) -> onnx.ModelProto:
    """Build an encoder like MiniLM's, from embeddings."""
    width, heads, inner = 384, 12, 1536
    net = Layers((1, tokens, width))
    value = "image"
    for _ in range(layers):
        mixed = net.attention(value, tokens, width, heads, net.dense_with_bias)
        value = net.layer_norm(net.node("Add", [value, mixed]), width)
        wide = net.dense_with_bias(value, width, inner)
        scaled = net.node("Erf", [net.node("Div", [wide, net.scalar(math.sqrt(2))])])
        gate = net.node("Mul", [net.node("Add", [scaled, net.scalar(1.0)]), net.scalar(0.5)])
        gelu = net.node("Mul", [wide, gate])
        value = net.node("Add", [value, net.dense_with_bias(gelu, inner, width)])
        value = net.layer_norm(value, width)
    return net.finish(value)


def lstm(steps: int = 32, width: int = 128) -> onnx.ModelProto:
    """Build two recurrent layers, as of a small voice detector."""
    net = Layers((steps, 1, width))
    value = "image"
    for _ in range(2):
        random = np.random.default_rng(3)
        shapes = ((1, 4 * width, width), (1, 4 * width, width), (1, 8 * width))
        weights = [(random.standard_normal(s) / math.sqrt(width)).astype("float32") for s in shapes]
        inputs = [value, *(net.constant(weight) for weight in weights)]
        history = net.node("LSTM", inputs, outputs=3, hidden_size=width)[0]
        value = net.node("Squeeze", [history, net.constant(np.array([1], "int64"))])
    return net.finish(value)


def dynamic(model: onnx.ModelProto, path: Path, kind: str = "QInt8") -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(model, path, weight_type=QuantType[kind])


def blockwise(model: onnx.ModelProto, path: Path, bits: int = 4, block: int = 32) -> None:
    """Make a MatMulNBits of each product by a constant, with a zero point for each block."""
    weights = {item.name: item for item in model.graph.initializer}
    for node in model.graph.node:
        weight = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None:
            continue
        values = onnx.numpy_helper.to_array(weight)
        depth, columns = values.shape
        blocks = values.T.reshape(columns, depth // block, block)
        low, high = blocks.min(axis=-1, keepdims=True), blocks.max(axis=-1, keepdims=True)
        scale = (high - low) / ((1 << bits) - 1)
        zero = np.round(-low / scale).astype("uint8")
        whole = np.clip(np.round(blocks / scale) + zero, 0, (1 << bits) - 1).astype("uint8")
        if bits == 4:
            whole, zero = (part[..., ::2] | part[..., 1::2] << 4 for part in (whole, zero[..., 0]))
        parts = {"whole": whole, "scale": scale[..., 0], "zero": zero.reshape(columns, -1)}
        for part, array in parts.items():
            name = f"{weight.name}_{part}"
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        names = [node.input[0], *(f"{weight.name}_{part}" for part in parts)]
        sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
        made = onnx.helper.make_node(
            "MatMulNBits", names, list(node.output), domain="com.microsoft", **sizes
        )
        node.CopyFrom(made)
        model.graph.initializer.remove(weight)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, path)


def stored(model: onnx.ModelProto, path: Path) -> None:
    """Store each weight of a matrix product in int8, with a DequantizeLinear before the product."""
    weights = {item.name: item for item in model.graph.initializer}
    added = []
    for node in model.graph.node:
        weight = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None:
            continue
        values = onnx.numpy_helper.to_array(weight)
        scale = (np.abs(values).max(axis=0) / 127).astype("float32")
        whole = np.round(values / scale).astype("int8")
        names = [f"{weight.name}_{part}" for part in ("stored", "scale")]
        tensors = [
            onnx.numpy_helper.from_array(*p) for p in zip((whole, scale), names, strict=True)
        ]
        model.graph.initializer.extend(tensors)
        added.append(onnx.helper.make_node("DequantizeLinear", names, [weight.name], axis=1))
        model.graph.initializer.remove(weight)
    for node in added:
        model.graph.node.insert(0, node)
    onnx.save(model, path)


NETWORKS: Mapping[str, Callable[[Path], None]] = {
    "T5 encoder, float32": lambda path: onnx.save(t5(), path),
    "T5 encoder, dynamic int8": lambda path: dynamic(t5(), path),
    "T5 encoder, dynamic uint8 weights": lambda path: dynamic(t5(), path, "QUInt8"),
    "MiniLM, float32": lambda path: onnx.save(minilm(), path),
    "MiniLM, dynamic int8": lambda path: dynamic(minilm(), path),
    "MiniLM, weight-only int8": lambda path: stored(minilm(), path),
    "MiniLM, MatMulNBits 4": lambda path: blockwise(minilm(), path),
    "MiniLM, MatMulNBits 8": lambda path: blockwise(minilm(), path, 8),
    "LSTM, float32": lambda path: onnx.save(lstm(), path),
    "LSTM, dynamic int8": lambda path: dynamic(lstm(), path),
}


def measure(name: str, rounds: int, kernels: bool, folder: Path) -> str:
    path = folder / "model.onnx"
    NETWORKS[name](path)
    request = replace(make_request(path, "local", None, {}, {}), choices=NO_CHOICES)
    bundle = build(request, folder / "bundle", use_cache=False).bundle
    if kernels:
        _show_kernels(bundle, request)
    (given,) = bundle.reference_inputs().values()
    runtimes: dict[str, Runtime] = {
        "edgekit": Bundled(bundle.path / LIBRARY_NAME, ()),
        "ort": OnnxRuntime(path),
    }
    with loaded(runtimes, given) as processes:
        found, expected = (processes[who].outputs()[0] for who in runtimes)
        times = [
            [1e3 * processes[who].turn(SECONDS_A_TURN).wall for who in runtimes]
            for _ in range(rounds)
        ]
    ratios = [ours / theirs for ours, theirs in times]
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    apart = np.abs(found - expected).max() / np.abs(expected).max()
    size = (bundle.path / LIBRARY_NAME).stat().st_size / 1e6
    return f"| {name} | {ours:.3g} | {theirs:.3g} | {spread} | {apart:.1e} | {size:.1f} |"


def _show_kernels(bundle: Bundle, request: BuildRequest) -> None:
    plan = BenchPlan(warmup=2, runs=3, seconds=0.3, threads=1, profiled=10)
    profile = bench(bundle, LocalDevice(), plan).profile
    work = work_of_steps(import_model(request.source), request.board.target)
    assert profile is not None
    for kernel in sorted(profile.kernels, key=lambda kernel: -kernel.seconds)[:25]:
        times = f"{1e6 * kernel.seconds:9.1f} us {kernel.calls:4.0f}x"
        rule = work[kernel.name].rule if kernel.name in work else "-"
        print(f"{times} {rule:9s} {kernel.name}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="quantised models against onnxruntime")
    parser.add_argument("--filter", default="", help="only networks whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kernels", action="store_true", help="show the time of each kernel")
    options = parser.parse_args()
    print("| network | edgekit ms | onnxruntime ms | ratio | largest difference | library MB |")
    print("|---|---|---|---|---|---|")
    for name in NETWORKS:
        if options.filter.lower() in name.lower():
            with tempfile.TemporaryDirectory() as folder:
                print(measure(name, options.rounds, options.kernels, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
