"""Networks of one layer or a few, by their shapes: what `benchmarks.census` looks at.

Weights are random. The tables hold shapes of published networks; `drawn` adds others by a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.integers import Layers, dynamic, minilm, stored, t5

Write = Callable[[Path], None]
"""A function that writes a model into a file."""

CONVOLUTIONS = (
    # channels in and out, image, kernel, stride, groups
    (3, 64, 224, 7, 2, 1),
    (3, 32, 320, 3, 2, 1),
    (64, 64, 56, 3, 1, 1),
    (64, 128, 56, 3, 2, 1),
    (256, 256, 14, 3, 1, 1),
    (512, 512, 7, 3, 1, 1),
    (64, 256, 56, 1, 1, 1),
    (768, 384, 10, 1, 1, 1),
    (24, 144, 56, 1, 1, 1),
    (96, 96, 112, 3, 2, 96),
    (144, 144, 56, 3, 1, 144),
    (384, 384, 14, 5, 1, 384),
    (128, 128, 28, 3, 1, 4),
    (128, 128, 28, 3, 1, 32),
    (17, 45, 23, 3, 1, 1),
)
PRODUCTS = (
    # rows, depth, columns
    (1, 1024, 1000),
    (1, 4096, 4096),
    (128, 384, 1536),
    (197, 768, 768),
    (64, 300, 7),
    (1000, 3, 64),
)
SHAPES: Mapping[str, tuple[int, ...]] = {
    "of an image": (1, 64, 56, 56),
    "of a small image": (1, 512, 7, 7),
    "of tokens": (1, 128, 384),
    "of a line": (1, 16000),
    "of odd extents": (3, 37, 51, 13),
}
REDUCTIONS: Mapping[str, Callable[[Layers, str, int], str]] = {
    "softmax": lambda net, x, _: net.node("Softmax", [x], axis=-1),
    "softmax over axis 1": lambda net, x, _: net.node("Softmax", [x], axis=1),
    "mean over the last axis": lambda net, x, _: net.node("ReduceMean", [x], axes=[-1]),
    "mean over axis 1": lambda net, x, _: net.node("ReduceMean", [x], axes=[1]),
    "maximum over all": lambda net, x, _: net.node("ReduceMax", [x]),
    "layer norm": lambda net, x, width: net.layer_norm(x, width),
    "RMS norm": lambda net, x, width: net.rms_norm(x, width),
    "class": lambda net, x, _: net.node(
        "Cast", [net.node("ArgMax", [x], axis=-1)], to=onnx.TensorProto.FLOAT
    ),
}
ELEMENTS: Mapping[str, Callable[[Layers, str], str]] = {
    "addition": lambda net, x: net.node("Add", [x, net.scalar(0.5)]),
    "GELU": lambda net, x: net.node(
        "Mul", [x, net.node("Add", [net.node("Erf", [x]), net.scalar(1.0)])]
    ),
    "SiLU": lambda net, x: net.node("Mul", [x, net.node("Sigmoid", [x])]),
    "hard swish": lambda net, x: net.node("HardSwish", [x]),
    "power": lambda net, x: net.node("Pow", [net.node("Abs", [x]), net.scalar(1.7)]),
    "sine": lambda net, x: net.node("Sin", [x]),
    "choice": lambda net, x: net.node("Where", [net.node("Greater", [x, net.scalar(0)]), x, x]),
    "two joined": lambda net, x: net.node("Concat", [x, net.node("Relu", [x])], axis=1),
    "transposition": lambda net, x: net.node("Transpose", [x]),
    "running sum": lambda net, x: net.node("CumSum", [x, net.constant(np.array(1, "int64"))]),
}
IMAGES: Mapping[str, Callable[[Layers, str], str]] = {
    "maximum pool": lambda net, x: net.max_pool(x, 3, 2, 1),
    "average pool": lambda net, x: net.node("AveragePool", [x], kernel_shape=[3, 3], pads=[1] * 4),
    "global average pool": lambda net, x: net.node("GlobalAveragePool", [x]),
    "resize, nearest": lambda net, x: _resized(net, x, "nearest"),
    "resize, linear": lambda net, x: _resized(net, x, "linear"),
    "pad": lambda net, x: net.node(
        "Pad", [x, net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], "int64"))]
    ),
    "transposed convolution": lambda net, x: net.node(
        "ConvTranspose", [x, net.constant(np.ones((64, 32, 4, 4), "float32"))], strides=[2, 2]
    ),
    "pixels shuffled": lambda net, x: net.node("DepthToSpace", [x], blocksize=2),
}
RECURRENT = (("LSTM", 4, 32, 128), ("GRU", 3, 32, 128), ("GRU", 3, 100, 64), ("RNN", 1, 64, 64))
"""An operator, its gates, the steps and the width."""


def _resized(net: Layers, value: str, mode: str) -> str:
    scales = net.constant(np.array([1, 1, 2, 2], "float32"))
    return str(net.node("Resize", [value, "", scales], mode=mode))


def _convolution(case: tuple[int, ...], *, residual: bool = False) -> onnx.ModelProto:
    inputs, outputs, size, kernel, stride, groups = case
    net = Layers((1, inputs, size, size))
    value = net.conv("image", (inputs, outputs), kernel, stride, groups=groups)
    if residual:
        back = net.conv(value, (outputs, inputs), kernel, groups=groups, activation=None)
        value = net.node("Add", [back, "image"])
    return net.finish(value)


def _product(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    net = Layers((rows, depth))
    return net.finish(net.node("Relu", [net.dense_with_bias("image", depth, columns)]))


def _attention(tokens: int, width: int, heads: int) -> onnx.ModelProto:
    net = Layers((1, tokens, width))
    return net.finish(net.attention("image", tokens, width, heads, net.dense_with_bias))


def _recurrent(operator: str, gates: int, steps: int, width: int) -> onnx.ModelProto:
    net, random = Layers((steps, 1, width)), np.random.default_rng(3)
    shapes = ((1, gates * width, width), (1, gates * width, width), (1, 2 * gates * width))
    weights = [(random.standard_normal(s) / math.sqrt(width)).astype("float32") for s in shapes]
    inputs = ["image", *(net.constant(weight) for weight in weights)]
    return net.finish(net.node(operator, inputs, outputs=2, hidden_size=width)[0])


def _one(shape: tuple[int, ...], layer: Callable[..., str], *more: Any) -> onnx.ModelProto:
    net = Layers(shape)
    return net.finish(layer(net, "image", *more))


def _int8(model: onnx.ModelProto, path: Path) -> None:
    """Quantise as onnxruntime does: QuantizeLinear and DequantizeLinear around every operator."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    given = model.graph.input[0]
    shape = [each.dim_value for each in given.type.tensor_type.shape.dim]
    random = np.random.default_rng(0)
    samples = iter([{given.name: random.standard_normal(shape).astype("float32")}] * 2)

    class Samples:
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(samples, None)

    form, kind = QuantFormat.QDQ, QuantType.QInt8
    quantize_static(
        model, path, Samples(), quant_format=form, activation_type=kind, weight_type=kind
    )


def _of(make: Callable[..., onnx.ModelProto], *given: Any, **named: Any) -> Write:
    return lambda path: onnx.save(make(*given, **named), path)


def _quantised(make: Callable[..., onnx.ModelProto], *given: Any) -> Write:
    return lambda path: _int8(make(*given), path)


def _dynamic(kind: str, make: Callable[..., onnx.ModelProto], *given: Any) -> Write:
    return lambda path: dynamic(make(*given), path, kind)


def tabled() -> Iterator[tuple[str, Write]]:
    """Yield each network of the tables above with its name."""
    for case in CONVOLUTIONS:
        yield f"convolution {_words(case)}", _of(_convolution, case)
        yield f"int8 convolution {_words(case)}", _quantised(_convolution, case)
        if case[4] == 1:
            name = f"convolution with residual {_words(case)}"
            yield name, _of(_convolution, case, residual=True)
    for sizes in PRODUCTS:
        text = "x".join(map(str, sizes))
        yield f"product {text}", _of(_product, *sizes)
        yield f"int8 product {text}", _quantised(_product, *sizes)
        yield f"dynamic int8 product {text}", _dynamic("QInt8", _product, *sizes)
    for where, shape in SHAPES.items():
        for name, reduce in REDUCTIONS.items():
            yield f"{name} {where}", _of(_one, shape, reduce, shape[-1])
        for name, each in ELEMENTS.items():
            yield f"{name} {where}", _of(_one, shape, each)
    for name, layer in IMAGES.items():
        yield name, _of(_one, SHAPES["of an image"], layer)
    for operator, gates, steps, width in RECURRENT:
        name = f"{operator} of {steps} steps, width {width}"
        yield name, _of(_recurrent, operator, gates, steps, width)
    for tokens, width, heads in ((128, 384, 12), (197, 768, 12), (49, 96, 3)):
        yield f"attention {tokens}x{width}, {heads} heads", _of(_attention, tokens, width, heads)
    yield "LSTM, dynamic int8", _dynamic("QInt8", _recurrent, "LSTM", 4, 32, 128)
    yield "T5 encoder", _of(t5)
    yield "T5 encoder, dynamic int8", _dynamic("QInt8", t5)
    yield "T5 encoder, dynamic uint8 weights", _dynamic("QUInt8", t5)
    yield "T5 encoder, 37 tokens, dynamic int8", _dynamic("QInt8", t5, 2, 37)
    yield "MiniLM", _of(minilm)
    yield "MiniLM, dynamic int8", _dynamic("QInt8", minilm)
    yield "MiniLM, int8", _quantised(minilm)
    yield "MiniLM, weight-only int8", lambda path: stored(minilm(), path)


def drawn(count: int, seed: int) -> Iterator[tuple[str, Write]]:
    """Yield networks of shapes that no table has; the same seed draws the same."""
    random = np.random.default_rng(seed)

    def one_of(*values: int) -> int:
        return int(random.choice(values))

    def up_to(most: int) -> int:
        return round(math.exp(random.uniform(0, math.log(most))))

    for number in range(count):
        kind = number % 4
        if kind == 0:
            groups = one_of(1, 1, 1, 2)
            channels = [groups * up_to(300) for _ in range(2)]
            case = (*channels, 4 + up_to(100), one_of(1, 3, 5), one_of(1, 1, 2), groups)
            yield f"drawn convolution {_words(case)}", _of(_convolution, case)
        elif kind == 1:
            sizes = [up_to(300), up_to(2000), up_to(2000)]
            yield f"drawn product {'x'.join(map(str, sizes))}", _of(_product, *sizes)
        else:
            shape = (up_to(4), up_to(200), up_to(60), up_to(60))
            table: Mapping[str, Callable[..., str]] = REDUCTIONS if kind == 2 else ELEMENTS
            name = sorted(table)[int(random.integers(len(table)))]
            more = (shape[-1],) if kind == 2 else ()
            text = f"drawn {name} {'x'.join(map(str, shape))}"
            yield text, _of(_one, shape, table[name], *more)


def _words(case: tuple[int, ...]) -> str:
    inputs, outputs, size, kernel, stride, groups = case
    text = f"{inputs} to {outputs}, {kernel}x{kernel} at {size}x{size}"
    text += f", stride {stride}" if stride > 1 else ""
    return text + (f", {groups} groups" if groups > 1 else "")
