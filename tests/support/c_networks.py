"""Networks for bare metal, written down in code: a dozen small ones, and MLPerf Tiny's in float."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from support.onnx_models import onnx_model


class Net:
    """Writes nodes one after another; every weight from one seed, scaled as He et al. do."""

    def __init__(self, seed: int = 0) -> None:
        self._dice = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = array
        return name

    def weight(self, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) or 1
        values = self._dice.standard_normal(shape) * np.sqrt(2.0 / fan_in)
        return self.constant(values.astype(np.float32))

    def bias(self, channels: int) -> str:
        return self.constant((0.1 * self._dice.standard_normal(channels)).astype(np.float32))

    def node(self, kind: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def conv(
        self,
        source: str,
        name: str,
        channels: tuple[int, int],
        kernel: tuple[int, int] = (3, 3),
        *,
        strides: tuple[int, int] = (1, 1),
        pads: Sequence[int] = (1, 1, 1, 1),
        group: int = 1,
        activation: str = "Relu",
    ) -> str:
        weight = self.weight(channels[1], channels[0] // group, *kernel)
        made = self.node(
            "Conv",
            (source, weight, self.bias(channels[1])),
            name,
            strides=list(strides),
            pads=list(pads),
            group=group,
        )
        return (
            self.node(activation, (made,), f"{name}_{activation.lower()}") if activation else made
        )

    def dense(self, source: str, name: str, inputs: int, outputs: int, activation: str = "") -> str:
        weight = self.weight(outputs, inputs)
        made = self.node("Gemm", (source, weight, self.bias(outputs)), name, transB=1)
        return (
            self.node(activation, (made,), f"{name}_{activation.lower()}") if activation else made
        )

    def finish(self, inputs: Mapping[str, Sequence[int]], *outputs: str) -> onnx.ModelProto:
        return onnx_model(self.nodes, inputs, outputs, self.weights)


def ds_cnn() -> onnx.ModelProto:
    """Keyword spotting: 49 by 10 features, four depthwise separable blocks, 12 words."""
    net = Net()
    value = net.conv("x", "conv_0", (1, 64), (10, 4), strides=(2, 2), pads=(4, 1, 5, 1))
    for k in range(1, 5):
        value = net.conv(value, f"depthwise_{k}", (64, 64), group=64)
        value = net.conv(value, f"pointwise_{k}", (64, 64), (1, 1), pads=(0, 0, 0, 0))
    value = net.node("GlobalAveragePool", (value,), "pool")
    value = net.node("Flatten", (value,), "flat")
    value = net.dense(value, "dense", 64, 12)
    net.node("Softmax", (value,), "words", axis=1)
    return net.finish({"x": (1, 1, 49, 10)}, "words")


def resnet_8() -> onnx.ModelProto:
    """Image classification: 32 by 32 by 3, three residual blocks, 10 classes."""
    net = Net()
    value, width = net.conv("x", "stem", (3, 16)), 16
    for k, (channels, stride) in enumerate(((16, 1), (32, 2), (64, 2))):
        pads = (1, 1, 1, 1) if stride == 1 else (0, 0, 1, 1)
        inner = net.conv(
            value, f"block_{k}_a", (width, channels), strides=(stride, stride), pads=pads
        )
        inner = net.conv(inner, f"block_{k}_b", (channels, channels), activation="")
        if stride != 1:
            value = net.conv(
                value,
                f"block_{k}_skip",
                (width, channels),
                (1, 1),
                strides=(stride, stride),
                pads=(0, 0, 0, 0),
                activation="",
            )
        value = net.node("Add", (inner, value), f"block_{k}_add")
        value, width = net.node("Relu", (value,), f"block_{k}_out"), channels
    value = net.node("GlobalAveragePool", (value,), "pool")
    value = net.node("Flatten", (value,), "flat")
    value = net.dense(value, "dense", 64, 10)
    net.node("Softmax", (value,), "classes", axis=1)
    return net.finish({"x": (1, 3, 32, 32)}, "classes")


def autoencoder() -> onnx.ModelProto:
    """Anomaly detection: 640 numbers through a bottleneck of 8."""
    net, value, width = Net(), "x", 640
    for k, size in enumerate((128, 128, 128, 128, 8, 128, 128, 128, 128)):
        value, width = net.dense(value, f"dense_{k}", width, size, "Relu"), size
    net.dense(value, "decoded", width, 640)
    return net.finish({"x": (1, 640)}, "decoded")


def strided() -> onnx.ModelProto:
    net = Net()
    value = net.conv("x", "conv", (3, 5), (3, 2), strides=(2, 3), pads=(0, 1, 2, 0))
    net.conv(value, "wide", (5, 7), (1, 3), pads=(0, 0, 0, 0), activation="Sigmoid")
    return net.finish({"x": (1, 3, 11, 13)}, "wide_sigmoid")


def dilated() -> onnx.ModelProto:
    net = Net()
    weight = net.weight(6, 4, 3, 3)
    net.node("Conv", ("x", weight), "conv", dilations=[2, 2], pads=[2, 2, 2, 2])
    net.node("Tanh", ("conv",), "y")
    return net.finish({"x": (1, 4, 9, 8)}, "y")


def grouped() -> onnx.ModelProto:
    net = Net()
    value = net.conv("x", "grouped", (8, 12), group=4)
    net.conv(value, "twice", (12, 24), group=12, activation="HardSwish")
    return net.finish({"x": (1, 8, 6, 7)}, "twice_hardswish")


def pools() -> onnx.ModelProto:
    net = Net()
    value = net.conv("x", "conv", (2, 6))
    most = net.node("MaxPool", (value,), "most", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    mean = net.node(
        "AveragePool", (value,), "mean", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
    )
    joined = net.node("Concat", (most, mean), "joined", axis=1)
    net.node("GlobalMaxPool", (joined,), "y")
    return net.finish({"x": (1, 2, 9, 9)}, "y")


def two_outputs() -> onnx.ModelProto:
    """One of them is read again."""
    net = Net()
    first = net.conv("x", "first", (2, 4))
    net.conv(first, "second", (4, 3))
    return net.finish({"x": (1, 2, 6, 6)}, "first_relu", "second_relu")


def several_inputs() -> onnx.ModelProto:
    """One is used twice, one at the very end."""
    net = Net()
    value = net.node("Mul", ("a", "b"), "product")
    value = net.node("Sub", (value, "a"), "difference")
    value = net.dense(value, "dense", 20, 6)
    net.node("Add", (value, "late"), "y")
    return net.finish({"a": (3, 20), "b": (1, 20), "late": (3, 6)}, "y")


def untouched() -> onnx.ModelProto:
    """What goes in comes out, beside something that is computed."""
    net = Net()
    net.node("Identity", ("x",), "same")
    net.node("Reshape", ("x", net.constant(np.array([4, 2], np.int64))), "turned")
    net.node("Exp", ("x",), "grown")
    return net.finish({"x": (2, 4)}, "same", "turned", "grown")


def normalised() -> onnx.ModelProto:
    net = Net()
    value = net.node(
        "LayerNormalization", ("x", net.constant(np.ones(24, np.float32)), net.bias(24)), "norm"
    )
    value = net.node("MatMul", (value, net.weight(24, 24)), "projected")
    value = net.node("Erf", (value,), "erf")
    net.node("Softmax", (value,), "y", axis=-1)
    return net.finish({"x": (5, 24)}, "y")


def large_softmax() -> onnx.ModelProto:
    """What lies between its steps is too large for a stack."""
    net = Net()
    net.node("Softmax", ("x",), "y", axis=1)
    return net.finish({"x": (2, 300, 3)}, "y")


def reserved_names() -> onnx.ModelProto:
    """Layers and inputs that are called as C or its library calls something else."""
    net = Net()
    value = net.node("Relu", ("int",), "exp")
    value = net.node("Tanh", (value,), "main")
    value = net.node("Neg", (value,), '3 */ strange "name"\n')
    net.node("Sigmoid", (value,), "run")
    return net.finish({"int": (1, 5)}, "run")


def resized() -> onnx.ModelProto:
    net = Net()
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    near = net.node("Resize", ("x", "", scales), "near", mode="nearest")
    smooth = net.node("Resize", ("x", "", scales), "smooth", mode="linear")
    net.node("Sub", (near, smooth), "y")
    return net.finish({"x": (1, 2, 5, 4)}, "y")


def rearranged() -> onnx.ModelProto:
    net = Net()
    value = net.node("Transpose", ("x",), "turned", perm=[0, 2, 1])
    value = net.node("Slice", (value, *map(net.constant, _slice())), "cut")
    net.node("ReduceSum", (value, net.constant(np.array([1], np.int64))), "y", keepdims=0)
    return net.finish({"x": (2, 6, 5)}, "y")


def _slice() -> tuple[np.ndarray, ...]:
    return tuple(np.array([number], np.int64) for number in (1, 4, 1))


SMALL: Mapping[str, Callable[[], onnx.ModelProto]] = {
    function.__name__: function
    for function in (
        strided,
        dilated,
        grouped,
        pools,
        two_outputs,
        several_inputs,
        untouched,
        normalised,
        large_softmax,
        reserved_names,
        resized,
        rearranged,
    )
}
TINY: Mapping[str, Callable[[], onnx.ModelProto]] = {
    function.__name__: function for function in (ds_cnn, resnet_8, autoencoder)
}
