"""Convolutions of every shape through edgekit's schedules, judged by onnxruntime."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from support.compiling import check_against_onnxruntime, compiled_from, random_array
from support.examples import examples
from support.onnx_models import onnx_model

from edgekit.profiles.cpu import Target

EPILOGUES = ("bias", "relu", "clip", "residual", "hard-swish", "silu", "scale", "leaky", "norm")


@dataclass(frozen=True)
class Case:
    batch: int
    channels: int
    """The count in one group."""
    outputs: int
    """The count in one group."""
    groups: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Top, left, bottom, right."""
    dilations: tuple[int, int] = (1, 1)
    epilogue: tuple[str, ...] = ()
    network_input: bool = True
    """Whether the convolution reads the network's own input, or what another computed."""

    @property
    def fits(self) -> bool:
        top, left, bottom, right = self.pads
        return all(
            size + around > (taps - 1) * dilation
            for size, around, taps, dilation in zip(
                self.size, (top + bottom, left + right), self.kernel, self.dilations, strict=True
            )
        )


def pair(most: int, least: int = 1) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


SIZES = st.one_of(
    pair(20),
    st.tuples(st.just(1), st.integers(1, 70)),
    st.tuples(st.integers(1, 70), st.just(1)),
    st.sampled_from([(7, 7), (14, 14), (13, 31), (56, 3), (3, 37), (28, 28)]),
)
CHANNELS = st.one_of(
    st.integers(1, 20), st.sampled_from([24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 128, 130])
)
PADS = st.tuples(*[st.integers(0, 3)] * 4)
EPILOGUE = st.lists(st.sampled_from(EPILOGUES), max_size=3).map(tuple)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(["plain", "plain", "1x1", "grouped", "depthwise"]))
    groups = {"grouped": st.integers(2, 5), "depthwise": CHANNELS}.get(kind, st.just(1))
    channels = st.just(1) if kind == "depthwise" else CHANNELS
    outputs = st.sampled_from([1, 1, 1, 2, 3]) if kind == "depthwise" else CHANNELS
    kernel = st.just((1, 1)) if kind == "1x1" else pair(5)
    case = Case(
        batch=draw(st.sampled_from([1, 1, 1, 2, 3])),
        channels=draw(channels),
        outputs=draw(outputs),
        groups=draw(groups),
        size=draw(SIZES),
        kernel=draw(kernel),
        strides=draw(pair(3)),
        pads=draw(PADS),
        dilations=draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3), (2, 1)])),
        epilogue=draw(EPILOGUE),
        network_input=draw(st.booleans()),
    )
    if not case.fits:
        pads = [(k - 1) * d for k, d in zip(case.kernel, case.dilations, strict=True)]
        case = replace(case, pads=(*pads, *pads))
    return case


def output_size(case: Case) -> tuple[int, int]:
    top, left, bottom, right = case.pads
    height, width = (
        (size + around - (taps - 1) * dilation - 1) // stride + 1
        for size, around, taps, dilation, stride in zip(
            case.size,
            (top + bottom, left + right),
            case.kernel,
            case.dilations,
            case.strides,
            strict=True,
        )
    )
    return height, width


def network(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    random = np.random.default_rng(1)
    inputs, outputs = case.channels * case.groups, case.outputs * case.groups
    weights: dict[str, np.ndarray] = {}
    shapes = {"x": (case.batch, inputs, *case.size)}
    nodes: list[onnx.NodeProto] = []

    def constant(*shape: int, scale: float = 1.0) -> str:
        name = f"w{len(weights)}"
        weights[name] = (random.standard_normal(shape) * scale).astype("float32")
        return name

    def add(operator: str, *operands: str, **attributes: object) -> str:
        nodes.append(helper.make_node(operator, operands, [f"v{len(nodes)}"], **attributes))
        return f"v{len(nodes) - 1}"

    value = "x"
    if not case.network_input:
        value = add("Relu", add("Conv", "x", constant(inputs, inputs, 1, 1, scale=inputs**-0.5)))
    scale = 1 / math.sqrt(case.channels * math.prod(case.kernel))
    operands = [value, constant(outputs, case.channels, *case.kernel, scale=scale)]
    if "bias" in case.epilogue:
        operands.append(constant(outputs))
    value = add(
        "Conv",
        *operands,
        kernel_shape=case.kernel,
        strides=case.strides,
        pads=case.pads,
        dilations=case.dilations,
        group=case.groups,
    )
    for step in case.epilogue:
        if step == "relu":
            value = add("Relu", value)
        elif step == "clip":
            bounds = [f"low{len(weights)}", f"high{len(weights)}"]
            weights |= {name: np.float32(x) for name, x in zip(bounds, (-0.5, 0.5), strict=True)}
            value = add("Clip", value, *bounds)
        elif step == "residual":
            shapes["r"] = (case.batch, outputs, *output_size(case))
            value = add("Add", value, "r")
        elif step == "hard-swish":
            value = add("HardSwish", value)
        elif step == "silu":
            value = add("Mul", value, add("Sigmoid", value))
        elif step == "scale":
            value = add("Mul", value, constant(1, outputs, 1, 1))
        elif step == "leaky":
            value = add("LeakyRelu", value, alpha=0.1)
        elif step == "norm":
            parts = [constant(outputs) for _ in range(3)]
            variance = f"variance{len(weights)}"
            weights[variance] = random.uniform(0.5, 2, outputs).astype("float32")
            value = add("BatchNormalization", value, *parts, variance)
    feeds = {name: random_array(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    return onnx_model(nodes, shapes, [value], weights), feeds


def check(case: Case, target: Target | None = None) -> set[str]:
    """The rules that made the kernels."""
    compiled = check_against_onnxruntime(*network(case), target=target)
    return {rule for _, rule in compiled.rules}


@settings(max_examples=examples(25))
@given(cases())
def test_any_convolution_gives_onnxruntimes_numbers(case: Case) -> None:
    check(case)


PLAIN = Case(1, 20, 40, 1, (19, 23), (3, 3), pads=(1, 1, 1, 1), epilogue=("bias", "relu"))
DEPTHWISE = replace(PLAIN, channels=1, outputs=1, groups=37)


def of(cpu: str) -> Target:
    return Target("llvm", "x86_64-linux-gnu", cpu, (), 2)


@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
@pytest.mark.parametrize("case", [PLAIN, DEPTHWISE, replace(PLAIN, kernel=(1, 1), size=(7, 7))])
def test_older_processors_get_the_same_numbers(case: Case, cpu: str) -> None:
    check(case, of(cpu))


@pytest.mark.parametrize("case", [PLAIN, DEPTHWISE, replace(PLAIN, kernel=(1, 1), groups=2)])
def test_arm_processors_get_the_same_rules(case: Case) -> None:
    target = Target("llvm", "aarch64-linux-gnu", "cortex-a72", ("+neon",), 4)

    there = compiled_from(network(case)[0], target)

    assert {rule for _, rule in there.rules} == check(case)


@settings(max_examples=6)
@given(cases(), st.sampled_from(["x86-64", "haswell"]))
def test_any_convolution_is_right_with_narrower_vectors(case: Case, cpu: str) -> None:
    check(case, of(cpu))


@pytest.mark.parametrize(
    "case",
    [
        replace(PLAIN, size=(1, 1)),
        replace(PLAIN, size=(1, 53), kernel=(1, 3), pads=(0, 1, 0, 1)),
        replace(PLAIN, size=(53, 1), kernel=(3, 1), pads=(1, 0, 1, 0)),
        replace(PLAIN, batch=5, size=(5, 5)),
        replace(PLAIN, channels=3, outputs=32, strides=(2, 2), size=(61, 67)),
        replace(PLAIN, dilations=(3, 2), pads=(3, 2, 3, 2)),
        replace(PLAIN, pads=(0, 4, 2, 1)),
        replace(PLAIN, kernel=(7, 7), pads=(6, 6, 6, 6), size=(2, 2)),
        replace(PLAIN, groups=3, channels=5, outputs=7),
        replace(PLAIN, groups=2, channels=32, outputs=64),
        replace(PLAIN, channels=300, outputs=600, kernel=(1, 1), pads=(0, 0, 0, 0), size=(7, 7)),
        replace(DEPTHWISE, outputs=3),
        replace(DEPTHWISE, groups=64, kernel=(5, 5), pads=(2, 2, 2, 2), strides=(2, 2)),
        replace(PLAIN, epilogue=("bias", "silu", "residual")),
    ],
    ids=str,
)
def test_a_convolution_of_note(case: Case) -> None:
    check(case)


def test_convolutions_are_made_by_the_rules_for_them() -> None:
    """The result goes back to channels first by the generic one."""
    assert check(PLAIN) == {"product", "generic"}
    assert check(DEPTHWISE) == {"depthwise", "generic"}
    assert check(replace(PLAIN, groups=2)) == {"product", "generic"}


@dataclass(frozen=True)
class Transposed:
    batch: int
    channels: int
    outputs: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    more: tuple[int, int]
    dilations: tuple[int, int]
    groups: int
    bias: bool


@st.composite
def transposed_cases(draw: st.DrawFn) -> Transposed:
    kernel, strides = draw(pair(5)), draw(pair(3))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)]))
    reach = [(taps - 1) * d for taps, d in zip(kernel, dilations, strict=True)]
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    return Transposed(
        batch=draw(st.integers(1, 2)),
        channels=draw(CHANNELS),
        outputs=draw(CHANNELS),
        size=draw(pair(14, 3)),
        kernel=kernel,
        strides=strides,
        pads=tuple(draw(st.integers(0, min(2, reach[side % 2]))) for side in range(4)),  # type: ignore[arg-type]
        more=tuple(draw(st.integers(0, stride - 1)) for stride in strides),  # type: ignore[arg-type]
        dilations=dilations,
        groups=groups,
        bias=draw(st.booleans()),
    )


@settings(max_examples=examples(20))
@given(transposed_cases(), st.booleans())
def test_any_transposed_convolution_gives_onnxruntimes_numbers(
    case: Transposed, network_input: bool
) -> None:
    random = np.random.default_rng(2)
    inputs, outputs = case.channels * case.groups, case.outputs * case.groups
    weights = {
        "w": random.standard_normal((inputs, case.outputs, *case.kernel)).astype("float32"),
        "first": (random.standard_normal((inputs, inputs, 1, 1)) * inputs**-0.5).astype("float32"),
        "b": random.standard_normal(outputs).astype("float32"),
    }
    nodes = [] if network_input else [helper.make_node("Conv", ["x", "first"], ["c"])]
    source = "x" if network_input else "c"
    operands = [source, "w", "b"] if case.bias else [source, "w"]
    nodes.append(
        helper.make_node(
            "ConvTranspose",
            operands,
            ["t"],
            kernel_shape=case.kernel,
            strides=case.strides,
            pads=case.pads,
            output_padding=case.more,
            dilations=case.dilations,
            group=case.groups,
        )
    )
    nodes.append(helper.make_node("Relu", ["t"], ["y"]))
    used = {name for node in nodes for name in node.input}
    model = onnx_model(
        nodes,
        {"x": (case.batch, inputs, *case.size)},
        ["y"],
        {name: array for name, array in weights.items() if name in used},
    )
    check_against_onnxruntime(model, {"x": random_array((case.batch, inputs, *case.size))})


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("rank", [1, 3])
def test_convolutions_over_lines_and_over_volumes(operator: str, rank: int) -> None:
    shape = (2, 6, 17) if rank == 1 else (1, 6, 5, 6, 7)
    weight = random_array((6, 6, *[3] * rank), 1)
    node = helper.make_node(operator, ["x", "w"], ["c"], strides=[2] * rank, pads=[1] * 2 * rank)
    relu = helper.make_node("Relu", ["c"], ["y"])
    model = onnx_model([node, relu], {"x": shape}, ["y"], {"w": weight})

    check_against_onnxruntime(model, {"x": random_array(shape)})


def test_a_convolution_whose_kernel_is_computed() -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    shapes = {"x": (1, 5, 9, 9), "w": (7, 5, 3, 3)}
    feeds = {name: random_array(shape) for name, shape in shapes.items()}

    check_against_onnxruntime(onnx_model(nodes, shapes, ["y"], {}), feeds)


@pytest.mark.parametrize("groups", [1, 8])
def test_nan_and_infinity_reach_every_result_that_they_touch(groups: int) -> None:
    case = replace(PLAIN, channels=8 // groups, outputs=16 // groups, groups=groups, epilogue=())
    model, feeds = network(case)
    feeds["x"][0, 0, 3, 4] = np.nan
    feeds["x"][0, 1, 15, 15] = np.inf

    check_against_onnxruntime(model, feeds)
