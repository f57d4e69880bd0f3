"""Well-known networks by their shapes, with random weights: what a benchmark needs of them.

Built in code, so that nothing has to be downloaded; `build(name)` gives a checked ONNX model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
CLASSES = 1000


class Writer:
    """Nodes, one after the other, and the weights they need; values go by name."""

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self.shape = tuple(shape)
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def node(
        self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any
    ) -> Any:
        number = len(self._nodes)
        names = [f"{operator.lower()}_{number}_{i}" for i in range(outputs)]
        name = f"/{operator}_{number}"
        self._nodes.append(helper.make_node(operator, inputs, names, name=name, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(
        self,
        value: str,
        channels: tuple[int, int],
        kernel: int = 1,
        stride: int = 1,
        pad: int | None = None,
        groups: int = 1,
        activation: str | None = "Relu",
    ) -> str:
        """Add a convolution with a batch norm's bias. Weights keep values in range."""
        inputs, outputs = channels
        fan_in = inputs // groups * kernel * kernel
        weight = self._random.standard_normal((outputs, inputs // groups, kernel, kernel))
        bias = self._random.standard_normal(outputs) * 0.1
        result = self.node(
            "Conv",
            [
                value,
                self.constant((weight * math.sqrt(1 / fan_in)).astype("float32")),
                self.constant(bias.astype("float32")),
            ],
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2 if pad is None else pad] * 4,
            group=groups,
        )
        if activation == "SiLU":
            return str(self.node("Mul", [result, self.node("Sigmoid", [result])]))
        return str(self.node(activation, [result]) if activation else result)

    def dense(self, value: str, inputs: int, outputs: int, activation: str | None = None) -> str:
        weight = self._random.standard_normal((outputs, inputs)) * math.sqrt(1 / inputs)
        bias = self._random.standard_normal(outputs) * 0.1
        constants = [self.constant(array.astype("float32")) for array in (weight, bias)]
        result = self.node("Gemm", [value, *constants], transB=1)
        return str(self.node(activation, [result]) if activation else result)

    def max_pool(self, value: str, kernel: int, stride: int, pad: int = 0, ceil: int = 0) -> str:
        window: dict[str, Any] = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [pad] * 4,
        }
        return str(self.node("MaxPool", [value], ceil_mode=ceil, **window))

    def finish(self, *outputs: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes,
            "network",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self._weights,
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(model)
        return model


def alexnet() -> onnx.ModelProto:
    """As first published: 227x227, local response normalisation left out as everyone does now."""
    net = Writer((1, 3, 227, 227))
    x = net.max_pool(net.conv("image", (3, 96), 11, 4, 0), 3, 2)
    x = net.max_pool(net.conv(x, (96, 256), 5, groups=2), 3, 2)
    x = net.conv(x, (256, 384), 3)
    x = net.conv(x, (384, 384), 3, groups=2)
    x = net.max_pool(net.conv(x, (384, 256), 3, groups=2), 3, 2)
    x = net.dense(net.node("Flatten", [x]), 256 * 6 * 6, 4096, "Relu")
    x = net.dense(net.dense(x, 4096, 4096, "Relu"), 4096, CLASSES)
    return net.finish(net.node("Softmax", [x]))


def squeezenet() -> onnx.ModelProto:
    """SqueezeNet 1.1."""
    net = Writer((1, 3, 224, 224))

    def fire(value: str, inputs: int, squeezed: int, expanded: int) -> str:
        small = net.conv(value, (inputs, squeezed))
        sides = [net.conv(small, (squeezed, expanded), kernel) for kernel in (1, 3)]
        return str(net.node("Concat", sides, axis=1))

    x = net.max_pool(net.conv("image", (3, 64), 3, 2, 0), 3, 2, ceil=1)
    x = net.max_pool(fire(fire(x, 64, 16, 64), 128, 16, 64), 3, 2, ceil=1)
    x = net.max_pool(fire(fire(x, 128, 32, 128), 256, 32, 128), 3, 2, ceil=1)
    x = fire(fire(x, 256, 48, 192), 384, 48, 192)
    x = net.conv(fire(fire(x, 384, 64, 256), 512, 64, 256), (512, CLASSES))
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    return net.finish(net.node("Softmax", [x]))


def _resnet(layers: Sequence[int], bottleneck: bool) -> onnx.ModelProto:
    net = Writer((1, 3, 224, 224))
    growth = 4 if bottleneck else 1

    def block(value: str, inputs: int, width: int, stride: int) -> str:
        outputs = width * growth
        if bottleneck:
            branch = net.conv(net.conv(value, (inputs, width)), (width, width), 3, stride)
            branch = net.conv(branch, (width, outputs), activation=None)
        else:
            branch = net.conv(value, (inputs, width), 3, stride)
            branch = net.conv(branch, (width, width), 3, activation=None)
        if stride != 1 or inputs != outputs:
            value = net.conv(value, (inputs, outputs), 1, stride, activation=None)
        return str(net.node("Relu", [net.node("Add", [branch, value])]))

    x = net.max_pool(net.conv("image", (3, 64), 7, 2), 3, 2, 1)
    channels = 64
    for stage, count in enumerate(layers):
        for number in range(count):
            width = 64 << stage
            x = block(x, channels, width, 2 if stage and number == 0 else 1)
            channels = width * growth
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    return net.finish(net.dense(x, channels, CLASSES))


def resnet18() -> onnx.ModelProto:
    return _resnet((2, 2, 2, 2), bottleneck=False)


def resnet50() -> onnx.ModelProto:
    return _resnet((3, 4, 6, 3), bottleneck=True)


def mobilenet_v2() -> onnx.ModelProto:
    net = Writer((1, 3, 224, 224))
    bounds = [net.constant(np.array(bound, "float32")) for bound in (0, 6)]

    def relu6(value: str) -> str:
        return str(net.node("Clip", [value, *bounds]))

    x, channels = relu6(net.conv("image", (3, 32), 3, 2, activation=None)), 32
    stages = (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )
    for expansion, outputs, count, first_stride in stages:
        for number in range(count):
            stride = first_stride if number == 0 else 1
            hidden, y = channels * expansion, x
            if expansion != 1:
                y = relu6(net.conv(y, (channels, hidden), activation=None))
            y = relu6(net.conv(y, (hidden, hidden), 3, stride, groups=hidden, activation=None))
            y = net.conv(y, (hidden, outputs), activation=None)
            x = net.node("Add", [x, y]) if stride == 1 and channels == outputs else y
            channels = outputs
    x = relu6(net.conv(x, (channels, 1280), activation=None))
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    return net.finish(net.dense(x, 1280, CLASSES))


def yolov8n() -> onnx.ModelProto:
    """The backbone, neck and heads of YOLOv8 nano at 640x640, up to the raw boxes and scores."""
    net = Writer((1, 3, 640, 640))

    def conv(value: str, channels: tuple[int, int], kernel: int = 1, stride: int = 1) -> str:
        return net.conv(value, channels, kernel, stride, activation="SiLU")

    def c2f(value: str, channels: tuple[int, int], count: int, shortcut: bool) -> str:
        inputs, outputs = channels
        half = outputs // 2
        sizes = net.constant(np.array([half, half], "int64"))
        parts = net.node("Split", [conv(value, (inputs, outputs)), sizes], 2, axis=1)
        for _ in range(count):
            inner = conv(conv(parts[-1], (half, half), 3), (half, half), 3)
            parts.append(net.node("Add", [parts[-1], inner]) if shortcut else inner)
        return conv(net.node("Concat", parts, axis=1), (half * (count + 2), outputs))

    def join(first: str, second: str) -> str:
        return str(net.node("Concat", [first, second], axis=1))

    def enlarge(value: str) -> str:
        scales = net.constant(np.array([1, 1, 2, 2], "float32"))
        rules: dict[str, Any] = {
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return str(net.node("Resize", [value, "", scales], mode="nearest", **rules))

    x = conv(conv("image", (3, 16), 3, 2), (16, 32), 3, 2)
    x = conv(c2f(x, (32, 32), 1, True), (32, 64), 3, 2)
    large = c2f(x, (64, 64), 2, True)
    middle = c2f(conv(large, (64, 128), 3, 2), (128, 128), 2, True)
    x = conv(c2f(conv(middle, (128, 256), 3, 2), (256, 256), 1, True), (256, 128))
    pooled = [x]
    for _ in range(3):
        pooled.append(net.max_pool(pooled[-1], 5, 1, 2))
    small = conv(net.node("Concat", pooled, axis=1), (512, 256))
    middle = c2f(join(enlarge(small), middle), (384, 128), 1, False)
    large = c2f(join(enlarge(middle), large), (192, 64), 1, False)
    middle = c2f(join(conv(large, (64, 64), 3, 2), middle), (192, 128), 1, False)
    small = c2f(join(conv(middle, (128, 128), 3, 2), small), (384, 256), 1, False)
    levels = []
    for value, channels, cells in ((large, 64, 6400), (middle, 128, 1600), (small, 256, 400)):
        heads = [
            net.conv(
                conv(conv(value, (channels, width), 3), (width, width), 3),
                (width, outputs),
                activation=None,
            )
            for width, outputs in ((64, 64), (80, 80))
        ]
        shape = net.constant(np.array([1, 144, cells], "int64"))
        levels.append(net.node("Reshape", [net.node("Concat", heads, axis=1), shape]))
    whole = net.node("Concat", levels, axis=2)
    sizes = net.constant(np.array([64, 80], "int64"))
    distances, scores = net.node("Split", [whole, sizes], 2, axis=1)
    return net.finish(_boxes(net, distances), net.node("Sigmoid", [scores]))


def _boxes(net: Writer, distances: str) -> str:
    """The mean of each side's distribution over 16 distances."""
    sides = net.constant(np.array([1, 4, 16, 8400], "int64"))
    order = net.node("Transpose", [net.node("Reshape", [distances, sides])], perm=[0, 2, 1, 3])
    likely = net.node("Softmax", [order], axis=1)
    steps = np.arange(16, dtype="float32").reshape(1, 16, 1, 1)
    mean = net.node("Conv", [likely, net.constant(steps)])
    flat = net.constant(np.array([1, 4, 8400], "int64"))
    return str(net.node("Reshape", [mean, flat]))


def retinaface() -> onnx.ModelProto:
    """RetinaFace with a quarter of MobileNet behind it, 320x320: boxes, scores and landmarks of
    three levels."""
    net = Writer((1, 3, 320, 320))

    def separable(value: str, inputs: int, outputs: int, stride: int = 1) -> str:
        own = net.conv(value, (inputs, inputs), 3, stride, groups=inputs, activation="LeakyRelu")
        return net.conv(own, (inputs, outputs), activation="LeakyRelu")

    def context(value: str) -> str:
        """Three sizes of neighbourhoods side by side."""
        plain = net.conv(value, (64, 32), 3, activation=None)
        narrow = net.conv(value, (64, 16), 3, activation="LeakyRelu")
        wider = net.conv(narrow, (16, 16), 3, activation=None)
        inner = net.conv(narrow, (16, 16), 3, activation="LeakyRelu")
        widest = net.conv(inner, (16, 16), 3, activation=None)
        return str(net.node("Relu", [net.node("Concat", [plain, wider, widest], axis=1)]))

    def enlarge(value: str) -> str:
        scales = net.constant(np.array([1, 1, 2, 2], "float32"))
        rules: dict[str, Any] = {
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return str(net.node("Resize", [value, "", scales], mode="nearest", **rules))

    x = net.conv("image", (3, 8), 3, 2, activation="LeakyRelu")
    channels, levels = 8, []
    for stage in (((16, 1), (32, 2), (32, 1), (64, 2), (64, 1)), ((128, 2), *((128, 1),) * 5)):
        for outputs, stride in stage:
            x, channels = separable(x, channels, outputs, stride), outputs
        levels.append((x, channels))
    levels.append((separable(separable(x, 128, 256, 2), 256, 256), 256))
    large, middle, small = (
        net.conv(value, (width, 64), activation="LeakyRelu") for value, width in levels
    )
    joined = net.node("Add", [middle, enlarge(small)])
    middle = net.conv(joined, (64, 64), 3, activation="LeakyRelu")
    joined = net.node("Add", [large, enlarge(middle)])
    large = net.conv(joined, (64, 64), 3, activation="LeakyRelu")
    features = [context(value) for value in (large, middle, small)]
    found = []
    for width in (4, 2, 10):
        heads = []
        for value in features:
            head = net.conv(value, (64, 2 * width), activation=None)
            rows = net.node("Transpose", [head], perm=[0, 2, 3, 1])
            shape = net.constant(np.array([1, -1, width], "int64"))
            heads.append(net.node("Reshape", [rows, shape]))
        found.append(net.node("Concat", heads, axis=1))
    return net.finish(found[0], net.node("Softmax", [found[1]], axis=2), found[2])


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "AlexNet": alexnet,
    "MobileNetV2": mobilenet_v2,
    "ResNet-18": resnet18,
    "ResNet-50": resnet50,
    "RetinaFace": retinaface,
    "SqueezeNet": squeezenet,
    "YOLOv8n": yolov8n,
}


def build(name: str) -> onnx.ModelProto:
    return NETWORKS[name]()
