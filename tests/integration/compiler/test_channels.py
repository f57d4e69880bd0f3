"""One pass moves channels either way: all operators between two convolutions follow, or resist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.relax_modules import operators_in, run_module, without_dead_code

from edgekit.base.tvm_compat import load_tvm

load_tvm()

from tvm import relax  # noqa: E402

from edgekit.compiler.passes.channel_orders import channels_first, channels_last  # noqa: E402

WAYS = {"first": ("NHWC", "HWIO", channels_first), "last": ("NCHW", "OIHW", channels_last)}
SHAPE = {"N": 2, "H": 6, "W": 8, "C": 4}

Between = Callable[[relax.BlockBuilder, Any, str], Any]


def axis(layout: str, *letters: str) -> list[int]:
    return [layout.index(letter) for letter in letters]


def per_axis(layout: str, **values: int) -> list[int]:
    return [values.get(letter, 0) for letter in layout]


def values(*shape: int) -> Any:
    array = np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")
    return relax.const(array)


def each_channel(layout: str) -> Any:
    return values(*(SHAPE["C"] if letter == "C" else 1 for letter in layout))


def padded(builder: relax.BlockBuilder, x: Any, layout: str) -> Any:
    before, after = per_axis(layout, H=1, C=2), per_axis(layout, W=3)
    widths = [width for pair in zip(before, after, strict=True) for width in pair]
    return relax.op.nn.pad(x, widths)


def joined(builder: relax.BlockBuilder, x: Any, layout: str) -> Any:
    other = builder.emit(relax.op.exp(x))
    return relax.op.concat([x, other], axis(layout, "C")[0])


def reduced(name: str, *letters: str, keeps: bool = True) -> Between:
    def between(builder: relax.BlockBuilder, x: Any, layout: str) -> Any:
        return getattr(relax.op, name)(x, axis=axis(layout, *letters), keepdims=keeps)

    return between


FOLLOW: dict[str, Between] = {
    "unary": lambda b, x, layout: relax.op.tanh(x),
    "binary": lambda b, x, layout: relax.op.multiply(x, each_channel(layout)),
    "scalar": lambda b, x, layout: relax.op.add(x, relax.const(2.0)),
    "low rank": lambda b, x, layout: relax.op.add(x, values(SHAPE[layout[3]])),
    "largest": lambda b, x, layout: relax.op.nn.max_pool2d(x, (3, 2), layout=layout),
    "average": lambda b, x, layout: relax.op.nn.avg_pool2d(x, (2, 2), (2, 2), layout=layout),
    "global": lambda b, x, layout: relax.op.nn.adaptive_avg_pool2d(x, (1, 1), layout),
    "resized": lambda b, x, layout: relax.op.image.resize2d(x, (9, 5), layout=layout),
    "softmax": lambda b, x, layout: relax.op.nn.softmax(x, axis(layout, "C")[0]),
    "padded": padded,
    "joined": joined,
    "mean": reduced("mean", "H", "W"),
    "largest channel": reduced("max", "C"),
    "sum of lines": reduced("sum", "H"),
}
RESIST: dict[str, Between] = {
    "turned": lambda b, x, layout: relax.op.flip(x, 1),
    "row": lambda b, x, layout: relax.op.cumsum(x, 2),
}


def network(between: Between, layout: str, kernel: str, ends: bool = True) -> Any:
    """A convolution, the operator, and a convolution of all that comes out."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([SHAPE[letter] for letter in layout], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(convolution(x, layout, kernel))
            value = builder.emit(between(builder, value, layout))
            if ends:
                value = builder.emit(convolution(value, layout, kernel))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    return builder.get()


def convolution(x: Any, layout: str, kernel: str) -> Any:
    channels = int(x.ty.shape[layout.index("C")])
    weight = values(*({"O": 4, "I": channels}.get(letter, 1) for letter in kernel))
    return relax.op.nn.conv2d(x, weight, data_layout=layout, kernel_layout=kernel)


def moved(module: Any, way: str) -> Any:
    turned = WAYS[way][2]()(relax.transform.CanonicalizeBindings()(module))
    return without_dead_code(relax.transform.CanonicalizeBindings()(turned))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*FOLLOW, *RESIST])
def test_an_operator_between_convolutions_follows_or_resists(name: str, way: str) -> None:
    layout, kernel, _ = WAYS[way]
    module = network({**FOLLOW, **RESIST}[name], layout, kernel)
    turned = moved(module, way)
    permuted = operators_in(turned).count("permute_dims")
    assert permuted == (2 if name in FOLLOW else 4)
    x = np.random.default_rng(0).standard_normal([SHAPE[letter] for letter in layout])
    feeds = {"x": x.astype("float32")}
    for before, after in zip(run_module(module, feeds), run_module(turned, feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_a_mean_of_all_pixels_ends_an_image(way: str) -> None:
    layout, kernel, _ = WAYS[way]
    module = network(reduced("mean", "H", "W", keeps=False), layout, kernel, ends=False)
    assert operators_in(moved(module, way)).count("permute_dims") == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_network_in_the_new_order_is_left_alone(way: str) -> None:
    layout, kernel, _ = WAYS["last" if way == "first" else "first"]
    module = network(FOLLOW["unary"], layout, kernel)
    assert "permute_dims" not in operators_in(moved(module, way))
