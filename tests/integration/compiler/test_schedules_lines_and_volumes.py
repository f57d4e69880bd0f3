"""Convolutions over lines and volumes through edgekit's schedules, judged by onnxruntime."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper
from support.compiling import check_against_onnxruntime, one_node_model, random_array
from support.examples import examples
from support.onnx_models import onnx_model

from edgekit.compiler.compile import Compiled

NEAR = 1e-4


def rules(compiled: Compiled) -> set[str]:
    return {rule for _, rule in compiled.rules}


@settings(max_examples=examples(20))
@given(
    batch=st.integers(1, 3),
    groups=st.sampled_from([1, 1, 2, 3]),
    channels=st.integers(1, 9),
    outputs=st.integers(1, 9),
    width=st.integers(1, 70),
    taps=st.integers(1, 7),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 3),
    pads=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_any_convolution_over_lines_gives_onnxruntimes_numbers(
    batch: int,
    groups: int,
    channels: int,
    outputs: int,
    width: int,
    taps: int,
    stride: int,
    dilation: int,
    pads: tuple[int, int],
) -> None:
    assume(width + sum(pads) >= (taps - 1) * dilation + 1)
    weight = random_array((outputs * groups, channels, taps), 1)
    shape = (batch, channels * groups, width)
    model = one_node_model(
        *("Conv", shape, [weight, random_array((outputs * groups,), 2)]),
        strides=[stride],
        dilations=[dilation],
        pads=list(pads),
        group=groups,
    )

    check_against_onnxruntime(model, {"x": random_array(shape)}, near=NEAR)


def test_a_network_over_lines_stays_in_the_packed_rules() -> None:
    weights = {f"w{n}": random_array((32, c, 5), n) for n, c in enumerate((8, 32, 32))}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[2, 2]),
        helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["e"], kernel_shape=[2], strides=[2]),
        helper.make_node("Conv", ["e", "w2"], ["y"], strides=[2]),
    ]
    shape = (1, 8, 100)

    compiled = check_against_onnxruntime(
        onnx_model(nodes, {"x": shape}, ["y"], weights), {"x": random_array(shape)}, near=NEAR
    )

    made = [rule for _, rule in compiled.rules]
    assert made.count("product") == 3
    # The pooling, and one change of layout at either end.
    assert made.count("generic") <= 3


@settings(max_examples=examples(12))
@given(
    channels=st.integers(1, 9),
    outputs=st.integers(1, 9),
    width=st.integers(1, 40),
    taps=st.integers(1, 5),
    stride=st.integers(1, 3),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    more=st.integers(0, 2),
)
def test_any_transposed_convolution_over_lines(
    channels: int,
    outputs: int,
    width: int,
    taps: int,
    stride: int,
    pads: tuple[int, int],
    more: int,
) -> None:
    assume(more < stride)
    assume((width - 1) * stride + taps + more - sum(pads) >= 1)
    assume(max(pads) < taps)
    weight = random_array((channels, outputs, taps), 1)
    shape = (2, channels, width)
    model = one_node_model(
        *("ConvTranspose", shape, [weight]),
        strides=[stride],
        pads=list(pads),
        output_padding=[more],
    )

    check_against_onnxruntime(model, {"x": random_array(shape)}, near=NEAR)


@settings(max_examples=examples(15))
@given(
    batch=st.integers(1, 2),
    groups=st.sampled_from([1, 1, 2]),
    channels=st.integers(1, 6),
    outputs=st.integers(1, 6),
    size=st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(1, 9)),
    taps=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)),
    pads=st.lists(st.integers(0, 2), min_size=6, max_size=6),
)
def test_any_convolution_over_volumes_gives_onnxruntimes_numbers(
    batch: int,
    groups: int,
    channels: int,
    outputs: int,
    size: tuple[int, int, int],
    taps: tuple[int, int, int],
    strides: tuple[int, int, int],
    dilations: tuple[int, int, int],
    pads: list[int],
) -> None:
    for axis in range(3):
        assume(size[axis] + pads[axis] + pads[axis + 3] >= (taps[axis] - 1) * dilations[axis] + 1)
    weight = random_array((outputs * groups, channels, *taps), 1)
    shape = (batch, channels * groups, *size)
    model = one_node_model(
        *("Conv", shape, [weight, random_array((outputs * groups,), 2)]),
        strides=list(strides),
        dilations=list(dilations),
        pads=pads,
        group=groups,
    )

    check_against_onnxruntime(model, {"x": random_array(shape)}, near=NEAR)


def test_a_volumes_convolution_is_made_of_packed_ones() -> None:
    shape = (1, 16, 4, 12, 12)
    model = one_node_model("Conv", shape, [random_array((32, 16, 3, 3, 3), 1)], pads=[1] * 6)

    compiled = check_against_onnxruntime(model, {"x": random_array(shape)}, near=NEAR)

    assert "product" in rules(compiled)
    assert "none" not in rules(compiled)
