"""int8 kernels of every shape and instruction set give LiteRT's numbers, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tflite_models import Op, T, constant, tflite_bytes, write_model

from edgekit.cpu import Target, this_cpu
from edgekit.instruction_sets import X86_CPUS
from edgekit.model import ModelSource, import_model
from edgekit.oracle import oracle_for
from edgekit.pipeline import compile_model
from edgekit.tvm_compat import load_tvm

INPUT_SCALE = 0.037
LEVELS = {
    "alderlake": "AVX-VNNI",
    "skylake-avx512": "AVX-512 without dot products",
    "haswell": "AVX2",
    "sandybridge": "AVX",
    "x86-64": "SSE2",
}
"""CPUs whose best instruction for int8 differs; the one that runs the tests comes besides."""


def targets() -> list[Target | None]:
    cpu, mine = this_cpu()
    if cpu.arch != "x86_64":
        return [None]
    has = set(cpu.features)
    runs = [name for name in LEVELS if set(X86_CPUS.get(name, ())) <= has]
    return [None, *(replace(mine, cpu=name, features=()) for name in runs)]


TARGETS = targets()


@dataclass(frozen=True)
class Case:
    kind: str
    """conv, depthwise or dense."""
    channels: int
    outputs: int
    """Of a depthwise convolution: a multiple of its channels."""
    size: tuple[int, int] = (6, 7)
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    batch: int = 1
    same: bool = True
    zero: int = -11
    activation: int = 0
    """0 none, 1 ReLU, 3 ReLU6."""
    extreme: bool = False
    """All numbers as large as can be: what saturates on the way shows."""
    target: Target | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        if self.kind == "dense":
            return (self.batch, self.channels)
        return (self.batch, *self.size, self.channels)


CHANNELS = st.one_of(st.integers(1, 20), st.sampled_from([32, 33, 48, 64, 100, 130]))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(["conv", "conv", "depthwise", "dense"]))
    channels = draw(CHANNELS)
    outputs = channels * draw(st.integers(1, 3)) if kind == "depthwise" else draw(CHANNELS)
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3)]))
    return Case(
        kind,
        channels,
        outputs,
        size=draw(st.tuples(st.integers(1, 15), st.integers(1, 15))),
        kernel=draw(st.tuples(st.integers(1, 5), st.integers(1, 5))),
        strides=strides if dilations == (1, 1) else (1, 1),
        dilations=dilations,
        batch=draw(st.integers(1, 3)),
        same=True,
        zero=draw(st.integers(-128, 127)),
        activation=draw(st.sampled_from([0, 1, 3])),
        extreme=draw(st.booleans()),
        target=draw(st.sampled_from(TARGETS)),
    )


def numbers(random: np.random.Generator, shape: tuple[int, ...], extreme: bool) -> np.ndarray:
    if extreme:
        return random.choice(np.array([-127, -127, 127], "int8"), shape)
    return random.integers(-127, 128, shape).astype("int8")


def layer(case: Case) -> bytes:
    random = np.random.default_rng(7)
    taps = case.channels if case.kind == "dense" else np.prod(case.kernel)
    depth = taps * (case.channels if case.kind == "conv" else 1)
    shape = {
        "conv": (case.outputs, *case.kernel, case.channels),
        "depthwise": (1, *case.kernel, case.outputs),
        "dense": (case.outputs, case.channels),
    }[case.kind]
    scales: Any = random.uniform(0.3, 1.0, case.outputs) * 0.05
    if case.kind == "dense":
        scales = 0.05
    weight = constant(
        "w",
        numbers(random, shape, case.extreme),
        scale=tuple(scales) if case.kind != "dense" else scales,
        axis=3 if case.kind == "depthwise" else 0,
    )
    bias = constant(
        "b",
        random.integers(-3000, 3000, case.outputs).astype("int32"),
        scale=tuple(scales * INPUT_SCALE) if case.kind != "dense" else scales * INPUT_SCALE,
    )
    options = {
        "padding": 0 if case.same else 1,
        "strideH": case.strides[0],
        "strideW": case.strides[1],
        "dilationHFactor": case.dilations[0],
        "dilationWFactor": case.dilations[1],
        "fusedActivationFunction": case.activation,
    }
    name, table = {
        "conv": ("CONV_2D", "Conv2DOptions"),
        "depthwise": ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"),
        "dense": ("FULLY_CONNECTED", "FullyConnectedOptions"),
    }[case.kind]
    if case.kind == "depthwise":
        options["depthMultiplier"] = case.outputs // case.channels
    if case.kind == "dense":
        options = {"fusedActivationFunction": case.activation}
    return tflite_bytes(
        [
            T("x", case.input_shape, "int8", scale=INPUT_SCALE, zero=case.zero),
            weight,
            bias,
            T("r", (), "int8", scale=0.03 * float(depth) ** 0.5, zero=5),
        ],
        [Op(name, ("x", "w", "b"), ("r",), {"table": table, **options})],
        ["x"],
        ["r"],
    )


def check(case: Case, folder: Path) -> tuple[tuple[str, str], ...]:
    source = write_model(folder, layer(case))
    x = numbers(np.random.default_rng(5), case.input_shape, case.extreme)
    found, rules = run(source, x, case.target)
    np.testing.assert_array_equal(found, oracle_for(source).run({"x": x})["r"])
    return rules


def run(
    source: ModelSource, x: np.ndarray, target: Target | None
) -> tuple[np.ndarray, tuple[tuple[str, str], ...]]:
    tvm = load_tvm()
    compiled = compile_model(import_model(source), target or this_cpu()[1])
    machine = tvm.relax.VirtualMachine(compiled.executable, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy(), compiled.rules


@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_any_layer_gives_the_numbers_of_litert(
    case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(case, tmp_path_factory.mktemp("layer"))


LAYERS = (
    Case("conv", 64, 48, kernel=(3, 3)),
    Case("conv", 64, 48, kernel=(3, 3), extreme=True, zero=-128),
    Case("conv", 3, 24, (33, 31), (3, 3), strides=(2, 2), zero=127),
    Case("conv", 1, 64, (49, 10), (10, 4), strides=(2, 2), extreme=True),
    Case("conv", 6, 10, (9, 8), (3, 2), dilations=(2, 2)),
    Case("conv", 130, 7, (1, 9)),
    Case("depthwise", 64, 64, (25, 5), (3, 3), extreme=True),
    Case("depthwise", 6, 12, (9, 9), (3, 3), strides=(2, 2)),
    Case("dense", 640, 130, batch=1, extreme=True),
    Case("dense", 61, 33, batch=5),
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu if target else "this")
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: f"{case.kind}-{case.channels}")
def test_each_instruction_set_gives_the_same_numbers(
    case: Case, target: Target | None, tmp_path: Path
) -> None:
    rules = check(replace(case, target=target), tmp_path)
    wanted = "depthwise" if case.kind == "depthwise" else "int8"
    assert wanted in dict(rules).values()


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_work_is_shared_without_another_result(cores: int, tmp_path: Path) -> None:
    mine = this_cpu()[1]
    case = Case("conv", 64, 96, (28, 28), (3, 3), target=replace(mine, cores=cores))
    check(case, tmp_path)
