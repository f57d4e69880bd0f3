"""Models with named nodes, and backends to offload them to."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from edgekit.backends.base import Layer, Option, Refused, Rule
from support.onnx_models import onnx_model
from support.source import ROOT

EXAMPLES = ROOT / "examples"


def named_network(path: Path) -> Path:
    """Convolution, batch norm and ReLU, twice, then a pooling, a dense layer and a softmax."""
    random = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "stem.weight": random.standard_normal((8, 3, 3, 3)),
        "stem.bias": random.standard_normal(8),
        "depth.weight": random.standard_normal((8, 1, 3, 3)),
        "head.weight": random.standard_normal((10, 8)),
    }
    nodes = []

    def add(operator: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [f"{name}:0"], name=name, **attributes))
        return f"{name}:0"

    def norm(name: str, source: str) -> str:
        parts = [f"{name}.{part}" for part in ("gamma", "beta", "mean", "variance")]
        weights.update({part: random.uniform(0.5, 2, 8) for part in parts})
        return add("BatchNormalization", name, [source, *parts])

    x = add("Conv", "/stem/Conv", ["x", "stem.weight", "stem.bias"], pads=[1] * 4, strides=[2, 2])
    x = add("Relu", "/stem/Relu", [norm("/stem/Norm", x)])
    x = add("Conv", "/depth/Conv", [x, "depth.weight"], pads=[1] * 4, group=8)
    x = add("Relu", "/depth/Relu", [norm("/depth/Norm", x)])
    x = add("Flatten", "/head/Flatten", [add("GlobalAveragePool", "/head/Pool", [x])])
    x = add("Softmax", "/head/Softmax", [add("Gemm", "/head/Gemm", [x, "head.weight"], transB=1)])
    floats = {name: value.astype("float32") for name, value in weights.items()}
    onnx.save(onnx_model(nodes, {"x": [1, 3, 33, 40]}, [x], floats), path)
    return path


def two_region_network(path: Path) -> Path:
    """Convolution, batch norm and ReLU, before and after a sigmoid."""
    random = np.random.default_rng(1)
    weights: dict[str, np.ndarray] = {}
    nodes = []
    for number, (source, last) in enumerate((("x", "middle"), ("squeezed", "y"))):
        parts = [f"{part}{number}" for part in ("gamma", "beta", "mean", "variance")]
        weights.update({part: random.uniform(0.5, 2, 4) for part in parts})
        weights[f"w{number}"] = random.standard_normal((4, 4, 3, 3))
        convolved, normed = f"convolved{number}", f"normed{number}"
        nodes += [
            helper.make_node("Conv", [source, f"w{number}"], [convolved]),
            helper.make_node("BatchNormalization", [convolved, *parts], [normed]),
            helper.make_node("Relu", [normed], [last]),
        ]
    nodes.insert(3, helper.make_node("Sigmoid", ["middle"], ["squeezed"]))
    floats = {name: value.astype("float32") for name, value in weights.items()}
    onnx.save(onnx_model(nodes, {"x": [1, 4, 12, 12]}, ["y"], floats), path)
    return path


def install_example_backend(folder: Path, name: str = "backend") -> Path:
    """A package under examples, installed as any other: what to put on PYTHONPATH."""
    source = folder / "source"
    made = shutil.ignore_patterns("__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(EXAMPLES / name, source, ignore=made)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--target", str(folder / "site"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(source)], check=True, timeout=300
    )
    return folder / "site"


@dataclass(frozen=True)
class ToyBackend:
    """Takes single operators by their names, in TVM's words; generates nothing."""

    name: str
    operators: Mapping[str, int] = field(default_factory=dict)
    """The number of computed inputs."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Operators that match and are declined, with the reason."""
    title: str = "toy"
    version: str = "1"
    architectures: tuple[str, ...] = ("aarch64", "x86_64")
    options: Mapping[str, Option] = field(default_factory=dict)
    before_folding: bool = False
    include: Path | None = None

    def rules(self, options: Mapping[str, Any]) -> Sequence[Rule]:
        return [self._rule(operator, count) for operator, count in self.operators.items()]

    def _rule(self, operator: str, count: int) -> Rule:
        from tvm.relax.dpl import is_op, wildcard

        parts = {f"input{index}": wildcard() for index in range(count)}
        others = [wildcard() for _ in range(_ARGUMENTS.get(operator, count) - count)]

        def take(match: Any) -> Layer:
            if operator in self.refused:
                raise Refused(self.refused[operator])
            return Layer(operator, tuple(parts))

        pattern = is_op(f"relax.{operator}")(*parts.values(), *others)
        return Rule(operator, pattern, parts, take)

    def generate(self, region: Any, options: Any) -> Any:
        raise NotImplementedError

    def identity(self, board: Any, toolchain: Any) -> str:
        return ""

    def library(self, board: Any, toolchain: Any, events: Any) -> None:
        return None


_ARGUMENTS = {"nn.conv2d": 2, "matmul": 2, "reshape": 2}
"""Rules of operators whose last arguments are weights or shapes."""
