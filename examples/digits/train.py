"""Train a small network that reads printed digits, and write it as digits.onnx.

No download and no training framework: the pictures are drawn with Pillow's own font, turned,
moved and made noisy. The convolutions keep random filters, normalised to what they see; the last
layer is fitted in closed form. It takes seconds, and two runs give the same file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw, ImageFont

SIDE = 28
TRAINING, TESTING = 6000, 1000
HERE = Path(__file__).resolve().parent


def main() -> None:
    random = np.random.default_rng(2024)
    pictures, digits = draw_set(TRAINING + TESTING, random)
    network = Network()
    network.add_convolution(16, 5, random, sample=pictures[:500])
    network.add_convolution(64, 3, random, sample=pictures[:500])
    network.add_classifier(pictures[:TRAINING], digits[:TRAINING])

    guesses = network.run(pictures[TRAINING:]).argmax(axis=1)
    right = int((guesses == digits[TRAINING:]).sum())
    onnx.save(network.model(batch=1), HERE / "digits.onnx")
    Image.fromarray(draw(7, random)).save(HERE / "seven.png")
    print(f"digits.onnx: right on {right} of {TESTING} pictures that it was not trained on")


def draw(digit: int, random: np.random.Generator) -> np.ndarray:
    """One picture, white on black, as 28 by 28 bytes."""
    big = Image.new("L", (2 * SIDE, 2 * SIDE))
    font = ImageFont.load_default(size=int(random.integers(34, 46)))
    offset = random.integers(-5, 6, size=2)
    centre = (SIDE + int(offset[0]), SIDE + int(offset[1]))
    ImageDraw.Draw(big).text(centre, str(digit), fill=255, font=font, anchor="mm")
    turned = big.rotate(random.uniform(-15, 15), resample=Image.Resampling.BILINEAR)
    small = np.asarray(turned.resize((SIDE, SIDE), Image.Resampling.BILINEAR), dtype="float64")
    noisy = small + random.normal(0, 20, small.shape)
    return noisy.clip(0, 255).astype("uint8")


def draw_set(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pictures as the network takes them (0 to 1, one channel), and what is on them."""
    digits = random.integers(0, 10, size=count)
    pictures = np.stack([draw(int(digit), random) for digit in digits])
    return pictures[:, None].astype("float32") / 255, digits


@dataclass
class Network:
    """An ONNX graph that grows layer by layer; each layer is fitted to what reaches it."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    last: str = "image"
    channels: int = 1

    def add(
        self,
        operator: str,
        weights: dict[str, np.ndarray],
        result: str | None = None,
        **attributes: object,
    ) -> None:
        result = result or f"{operator.lower()}{len(self.nodes)}"
        names = {key: f"{result}.{key}" for key in weights}
        inputs = [self.last, *names.values()]
        self.nodes.append(helper.make_node(operator, inputs, [result], **attributes))
        self.weights |= {names[key]: value.astype("float32") for key, value in weights.items()}
        self.last = result

    def add_convolution(
        self,
        channels: int,
        kernel: int,
        random: np.random.Generator,
        sample: np.ndarray,
    ) -> None:
        """Convolution with random filters, batch norm with the statistics of `sample`, ReLU."""
        shape = (channels, self.channels, kernel, kernel)
        weight = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        self.add("Conv", {"weight": weight}, strides=[2, 2], pads=[kernel // 2] * 4)
        seen = self.run(sample)
        statistics = {"mean": seen.mean(axis=(0, 2, 3)), "variance": seen.var(axis=(0, 2, 3))}
        identity = {"gamma": np.ones(channels), "beta": np.zeros(channels)}
        self.add("BatchNormalization", identity | statistics)
        self.add("Relu", {})
        self.channels = channels

    def add_classifier(self, pictures: np.ndarray, digits: np.ndarray) -> None:
        """Ridge regression from all features to the ten digits, then a softmax."""
        self.add("Flatten", {})
        features = self.run(pictures).astype("float64")
        centre = features.mean(axis=0)
        features -= centre
        wanted = np.eye(10)[digits] - 0.1
        penalty = 1e-2 * len(features) * np.eye(features.shape[1])
        weight = np.linalg.solve(features.T @ features + penalty, features.T @ wanted)
        self.add("Gemm", {"weight": 10 * weight, "bias": -10 * centre @ weight})
        self.add("Softmax", {}, "probabilities", axis=1)

    def run(self, pictures: np.ndarray) -> np.ndarray:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            self.model("n").SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        result: np.ndarray = session.run(None, {"image": pictures})[0]
        return result

    def model(self, batch: int | str) -> onnx.ModelProto:
        shape = [batch, 1, SIDE, SIDE]
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
        result = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)
        weights = [numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        graph = helper.make_graph(self.nodes, "digits", [image], [result], weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made, strict_mode=True)


if __name__ == "__main__":
    main()
