"""How ncnn holds tensors, and its graphs as numbers."""

from __future__ import annotations

import struct
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from support.libraries import ncnn_layers

from edgekit.backends.base import Layer, Refused, Region, Step, Tensor
from edgekit.backends.ncnn import BACKEND
from edgekit.backends.ncnn.layout import AXES, ORDERS, held, held_axis
from edgekit.backends.ncnn.net import net_of
from edgekit.backends.ncnn.params import KINDS, encode_settings, encode_weights
from edgekit.backends.ncnn.published_gpus import published
from edgekit.backends.ncnn.vulkan import ON_GPU, place_in_words
from edgekit.backends.plan import options_of
from edgekit.profiles.board import load_board


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, "float32")


def step(layer: Layer, inputs: list[Tensor], outputs: list[Tensor]) -> Step:
    return Step("rule", layer, tuple(inputs), tuple(outputs), ("op",), ("node",), 0)


def region(steps: list[Step], inputs: list[Tensor], outputs: list[Tensor]) -> Region:
    return Region("symbol", "ncnn", tuple(steps), tuple(inputs), tuple(outputs))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 3, 8, 9), (3, 8, 9)),
        ((1, 10), (10,)),
        ((4200, 2), (4200, 2)),
        ((2, 3, 4, 5), (2, 3, 4, 5)),
        ((1, 1, 5), (1, 5)),
        ((1, 2, 3, 4, 5), (2, 3, 4, 5)),
        ((1,), (1,)),
        ((), (1,)),
    ],
)
def test_a_leading_axis_of_one_is_left_out(
    shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert held(shape) == expected


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((2, 3, 4, 5, 6), "4 axes"),
        ((1, 0, 4, 4), "without elements"),
        ((1, 2**16, 2**16), "more elements"),
    ],
)
def test_what_ncnn_cannot_hold_is_refused(shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        held(shape)


def test_axes_are_counted_without_the_batch() -> None:
    assert held_axis((1, 3, 8, 8), -1) == 2
    assert held_axis((5, 8), 0) == 0
    with pytest.raises(Refused, match="batch axis"):
        held_axis((1, 3), 0)


def test_every_permutation_has_a_number() -> None:
    for rank, orders in ORDERS.items():
        assert sorted(orders) == sorted("".join(order) for order in permutations(AXES[rank]))


def test_a_blob_that_two_read_is_split_and_so_is_one_that_the_caller_wants_too() -> None:
    a, b, c, d = (tensor(name, 1, 4, 8, 8) for name in "abcd")
    net = net_of(
        region(
            [
                step(Layer("ReLU", ("x",)), [a], [b]),
                step(Layer("BinaryOp", ("x", "y"), {"op_type": 0}), [b, b], [c]),
                step(Layer("Sigmoid", ("x",)), [c], [d]),
            ],
            [a],
            [c, d],
        )
    )

    reads = Counter(name for layer in net.layers for name in layer.reads)
    reads.update(net.outputs)
    made = [name for layer in net.layers for name in layer.makes]
    assert set(reads.values()) == {1}
    assert sorted(reads) == sorted(made)


def test_a_layer_that_reads_and_makes_other_shapes_gets_views_around_it() -> None:
    a, b = tensor("a", 1, 2, 3, 4), tensor("b", 1, 2, 3, 5)
    layer = Layer(
        "InnerProduct",
        ("x",),
        {"num_output": 5, "weight_data_size": 20, "view0": (6, 4), "makes": (6, 5)},
        {"weight": np.ones((5, 4), np.float32)},
    )

    net = net_of(region([step(layer, [a], [b])], [a], [b]))

    assert [layer.kind for layer in net.layers] == ["Input", "Reshape", "InnerProduct", "Reshape"]
    assert net.layers[1].settings == {"h": 6, "w": 4}
    assert net.layers[3].settings == {"c": 2, "h": 3, "w": 5}


def test_settings_are_encoded_as_ncnn_reads_them() -> None:
    words = list(
        encode_settings(
            "Convolution",
            {"num_output": 8, "activation_params": (0.0, 6.0), "activation_type": 3},
        )
    )

    six = struct.unpack("<i", struct.pack("<f", 6.0))[0]
    assert words == [0, 8, 9, 3, -23310, 2, 0, six, -233]


def test_weights_are_tagged_and_padded_to_four_bytes() -> None:
    weights = {"weight": np.array([1.5, -2, 3], np.float32), "bias": np.array([4], np.float32)}

    full = encode_weights("Convolution", weights, "fp32")
    half = encode_weights("Convolution", weights, "fp16")

    assert full == bytes(4) + np.array([1.5, -2, 3, 4], "<f4").tobytes()
    assert half[:4] == struct.pack("<I", 0x01306B47)
    assert half[4:10] == np.array([1.5, -2, 3], "<f2").tobytes()
    assert half[10:12] == bytes(2)
    assert half[12:] == np.array([4], "<f4").tobytes()


def test_of_reshapes_in_a_row_the_last_alone_is_left() -> None:
    """What stands between, 1000 planes of one element each, has gaps in ncnn."""
    x, y, z = tensor("x", 1, 1000), tensor("y", 1, 1000, 1, 1), tensor("z", 20, 50)
    extents = [{"c": 1000, "h": 1, "w": 1}, {"h": 20, "w": 50}]
    steps = [
        step(Layer("Reshape", ("input",), shape), [given], [made])
        for shape, given, made in zip(extents, (x, y), (y, z), strict=True)
    ]

    kinds = [(layer.kind, layer.reads) for layer in net_of(region(steps, [x], [z])).layers]
    both = [layer.kind for layer in net_of(region(steps, [x], [y, z])).layers]

    assert kinds == [("Input", ()), ("Reshape", ("x",))]
    assert both == ["Input", "Split", "Reshape", "Reshape"]


def test_the_library_is_built_with_every_layer_that_rules_ask_for() -> None:
    built = ncnn_layers()

    assert not {kind.lower() for kind in KINDS} - set(built)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "Vulkan, 1 of 2 layers, float32"),
        ({"fp16_storage": True}, "Vulkan, 1 of 2 layers, float16, sums in float32"),
        (
            {"fp16_storage": True, "fp16_arithmetic": True},
            "Vulkan, 1 of 2 layers, float16",
        ),
        ({"bf16_storage": True}, "Vulkan, 1 of 2 layers, bfloat16, sums in float32"),
    ],
)
def test_a_region_says_which_of_its_layers_a_gpu_can_run(
    options: dict[str, bool], words: str
) -> None:
    x, y, z = (tensor(name, 1, 8) for name in "xyz")
    steps = [step(Layer("ReLU", ("x",)), [x], [y]), step(Layer("Flip", ("x",)), [y], [z])]
    net = net_of(region(steps, [x], [z]))

    assert place_in_words(net, options_of(BACKEND, {"vulkan": True, **options})) == words
    assert set(KINDS) > ON_GPU


def test_the_option_for_vulkan_chooses_another_library() -> None:
    own, other = (BACKEND.variant(options_of(BACKEND, {"vulkan": on})) for on in (False, True))

    assert own is BACKEND
    assert other.version == f"{own.version}+vulkan"


def test_published_times_advise_for_and_against_a_gpu() -> None:
    said = {name: BACKEND.advice(load_board(name)) for name in ("rpi4", "rpi5", "rock5b")}
    said["jetson-orin"] = BACKEND.advice(load_board("jetson-orin"))

    assert said["rpi4"] == ""
    assert said["rpi5"].startswith("not on its GPU (VideoCore VII, [offload.ncnn] vulkan = true)")
    assert "11.6 to 18.3 times as long" in said["rpi5"]
    assert said["rock5b"].endswith("; measure both")
    assert said["jetson-orin"].endswith("; worth a try")
    assert all("https://" in text for text in said.values() if text)


def test_published_times_are_of_boards_that_may_use_them() -> None:
    for gpu in published().gpu:
        assert len(gpu.networks) == len(gpu.on_gpu) == len(gpu.on_cpu)
        for name in gpu.boards:
            assert "ncnn" in load_board(name).offload.allowed
