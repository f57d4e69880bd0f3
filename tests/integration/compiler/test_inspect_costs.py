"""Multiply-accumulates against numbers worked out by hand, and memory against TVM's own plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from edgekit.base.tvm_compat import load_tvm

load_tvm()

import tvm  # noqa: E402
from tvm import relax  # noqa: E402

from edgekit.compiler.compile import fused  # noqa: E402
from edgekit.compiler.liveness import peak_activation_bytes  # noqa: E402
from edgekit.compiler.macs import ShapeDependsOnDataError, count_macs  # noqa: E402

Body = Callable[..., Any]


def module_of(shapes: Sequence[Sequence[int]], body: Body, dtype: str = "float32") -> Any:
    """A module whose main takes tensors of these shapes."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{index}", relax.TensorType(shape, dtype)) for index, shape in enumerate(shapes)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = body(builder, *inputs)
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()


def weight(*shape: int) -> Any:
    return relax.const(np.ones(shape, "float32"))


def one(expression: Callable[..., Any]) -> Body:
    return lambda builder, *inputs: expression(*inputs)


op = relax.op

CONVOLUTIONS = [
    # Output elements times kernel times input channels of a group.
    (
        "first layer of MobileNetV2: 32 x 112 x 112 outputs of 3 x 3 x 3",
        (1, 3, 224, 224),
        lambda x: op.nn.conv2d(x, weight(32, 3, 3, 3), strides=2, padding=1),
        32 * 112 * 112 * 27,
    ),
    (
        "depthwise: each output sees its own channel only",
        (1, 32, 14, 14),
        lambda x: op.nn.conv2d(x, weight(32, 1, 3, 3), padding=1, groups=32),
        32 * 14 * 14 * 9,
    ),
    (
        "two groups",
        (2, 8, 5, 5),
        lambda x: op.nn.conv2d(x, weight(6, 4, 3, 3), groups=2),
        2 * 6 * 3 * 3 * 9 * 4,
    ),
    (
        "channels last, with a dilated kernel",
        (1, 9, 9, 4),
        lambda x: op.nn.conv2d(
            x, weight(3, 3, 4, 8), dilation=2, data_layout="NHWC", kernel_layout="HWIO"
        ),
        8 * 5 * 5 * 9 * 4,
    ),
    (
        "one dimension",
        (1, 4, 20),
        lambda x: op.nn.conv1d(x, weight(8, 4, 5)),
        8 * 16 * 5 * 4,
    ),
    (
        "three dimensions",
        (1, 2, 6, 6, 6),
        lambda x: op.nn.conv3d(x, weight(4, 2, 3, 3, 3)),
        4 * 4 * 4 * 4 * 27 * 2,
    ),
    (
        "transposed: each input element is spread over the kernel and 6 channels",
        (1, 4, 7, 7),
        lambda x: op.nn.conv2d_transpose(x, weight(4, 6, 2, 2), strides=2),
        4 * 7 * 7 * 4 * 6,
    ),
    (
        "transposed in two groups",
        (1, 4, 7, 7),
        lambda x: op.nn.conv2d_transpose(x, weight(4, 3, 2, 2), strides=2, groups=2),
        4 * 7 * 7 * 4 * 3,
    ),
    (
        "transposed in one dimension",
        (1, 4, 7),
        lambda x: op.nn.conv1d_transpose(x, weight(4, 6, 3)),
        4 * 7 * 3 * 6,
    ),
]


@pytest.mark.parametrize(
    ("shape", "body", "macs"),
    [case[1:] for case in CONVOLUTIONS],
    ids=[case[0] for case in CONVOLUTIONS],
)
def test_convolutions_count_as_worked_out_by_hand(
    shape: Sequence[int], body: Callable[..., Any], macs: int
) -> None:
    assert count_macs(module_of([shape], one(body))) == macs


@pytest.mark.parametrize(
    ("left", "right", "macs"),
    [
        ((1, 1280), (1280, 1000), 1280 * 1000),
        ((2, 3, 4, 5), (5, 6), 2 * 3 * 4 * 6 * 5),
        ((2, 3, 4, 5), (2, 3, 5, 6), 2 * 3 * 4 * 6 * 5),
        ((1, 3, 4, 5), (2, 1, 5, 6), 2 * 3 * 4 * 6 * 5),
        ((7,), (7,), 7),
        ((4, 7), (7,), 28),
    ],
)
def test_matrix_products_count_as_worked_out_by_hand(
    left: Sequence[int], right: Sequence[int], macs: int
) -> None:
    assert count_macs(module_of([left, right], one(op.matmul))) == macs


def test_what_multiplies_nothing_costs_nothing() -> None:
    module = module_of([(4, 4)], one(lambda x: op.add(op.nn.relu(x), x)))

    assert count_macs(module) == 0


def test_a_shape_that_only_running_tells_is_not_guessed() -> None:
    module = module_of([(4, 4)], one(lambda x: op.matmul(op.unique(x), op.unique(x))))

    with pytest.raises(ShapeDependsOnDataError):
        count_macs(module)


def test_memory_whose_size_only_running_tells_is_not_guessed() -> None:
    with pytest.raises(ShapeDependsOnDataError):
        peak_activation_bytes(module_of([(4, 4)], one(op.unique)))


FLOATS = 1000
KB = 4 * FLOATS
"""A tensor of this many bytes."""


def test_memory_of_a_chain_is_its_two_largest_neighbours() -> None:
    def body(builder: Any, x: Any) -> Any:
        wide = builder.emit(op.concat([x, x, x], axis=0))
        return builder.emit(op.sum(wide, axis=0, keepdims=True))

    peak = peak_activation_bytes(fused_of([(1, FLOATS)], body))

    assert peak == KB + 3 * KB


def test_what_is_read_again_later_stays_alive() -> None:
    def chain(builder: Any, x: Any) -> Any:
        first = builder.emit(op.nn.softmax(x))
        second = builder.emit(op.nn.softmax(first))
        return builder.emit(op.nn.softmax(second))

    def skip(builder: Any, x: Any) -> Any:
        first = builder.emit(op.nn.softmax(x))
        second = builder.emit(op.nn.softmax(first))
        third = builder.emit(op.nn.softmax(second))
        return builder.emit(op.concat([first, third]))

    assert peak_activation_bytes(fused_of([(1, FLOATS)], chain)) == 2 * KB
    # first and third, and the concatenation of both.
    assert peak_activation_bytes(fused_of([(1, FLOATS)], skip)) == 4 * KB


def test_element_wise_followers_write_into_no_memory_of_their_own() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, weight(2, 2, 1, 1)))
        y = builder.emit(op.add(y, relax.const(1.0, "float32")))
        return builder.emit(op.nn.relu(y))

    assert peak_activation_bytes(fused_of([(1, 2, 10, 50)], body)) == 2 * KB


def test_a_reshape_shares_its_arguments_memory() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.softmax(x))
        z = builder.emit(op.nn.softmax(builder.emit(op.reshape(y, (10, 100)))))
        largest = builder.emit(op.max(z))
        return builder.emit(op.add(largest, builder.emit(op.max(y))))

    # y, which is read again at the end and has two shapes, and z, beside one number.
    assert peak_activation_bytes(fused_of([(1, FLOATS)], body)) == 2 * KB + 4


def test_outputs_stay_alive_until_the_end() -> None:
    def body(builder: Any, x: Any) -> Any:
        early = builder.emit(op.nn.softmax(x))
        late = builder.emit(op.sum(x))
        for _ in range(3):
            late = builder.emit(op.nn.softmax(builder.emit(op.broadcast_to(late, (1, FLOATS)))))
            late = builder.emit(op.sum(late))
        return relax.Tuple([early, late])

    module = module_of([(1, FLOATS)], body)
    assert peak_activation_bytes(module) == 3 * KB, "early, and the last two of late"


def test_the_parts_of_a_split_are_alive_until_the_last_one_is_read() -> None:
    def body(builder: Any, x: Any) -> Any:
        parts = builder.emit(op.split(x, 2, axis=1))
        first = builder.emit(op.nn.softmax(parts[0]))
        second = builder.emit(op.nn.softmax(parts[1]))
        return builder.emit(op.concat([first, second], axis=0))

    # Both halves, the first result, the second result.
    assert peak_activation_bytes(fused_of([(1, FLOATS)], body)) == 2 * KB


def test_the_parts_of_a_split_take_memory_beside_the_whole() -> None:
    def body(builder: Any, x: Any) -> Any:
        parts = builder.emit(op.split(x, 2, axis=1))
        return builder.emit(op.add(parts[0], parts[1]))

    assert peak_activation_bytes(module_of([(1, FLOATS)], body)) == 2 * KB


@pytest.mark.parametrize(("dtype", "each"), [("bool", 1000), ("int64", 8000), ("int4", 500)])
def test_every_dtype_takes_its_own_width(dtype: str, each: int) -> None:
    module = module_of(
        [(1, FLOATS)], one(op.negative if dtype != "bool" else op.logical_not), dtype
    )

    assert peak_activation_bytes(module) == 2 * each


def test_weights_take_no_activation_memory_and_bytes_follow_the_dtype() -> None:
    module = module_of([(1, FLOATS)], one(op.nn.relu), dtype="int8")

    assert peak_activation_bytes(fused(module)) == 2 * FLOATS
    matmul = fused_of([(1, 10)], one(lambda x: op.matmul(x, weight(10, 10))))
    assert peak_activation_bytes(matmul) == 2 * 40


def fused_of(shapes: Sequence[Sequence[int]], body: Body) -> Any:
    return fused(module_of(shapes, body))


def test_tvms_own_plan_takes_no_less() -> None:
    """An independent planner, on a net with a skip connection and shrinking tensors."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.relu(op.nn.conv2d(x, weight(16, 3, 3, 3), padding=1)))
        z = builder.emit(op.nn.conv2d(y, weight(16, 16, 3, 3), padding=1))
        z = builder.emit(op.add(y, z))
        z = builder.emit(op.nn.max_pool2d(z, (2, 2), (2, 2)))
        z = builder.emit(op.nn.conv2d(z, weight(32, 16, 3, 3), padding=1))
        z = builder.emit(op.mean(z, [2, 3]))
        return builder.emit(op.nn.softmax(op.matmul(z, weight(32, 10))))

    shape = (1, 3, 32, 32)
    module = fused_of([shape], body)
    with tvm.target.Target("llvm"):
        planned = tvm.ir.transform.Sequential(
            [
                relax.transform.RewriteDataflowReshape(),
                relax.transform.ToNonDataflow(),
                relax.transform.RemovePurityChecking(),
                relax.transform.CallTIRRewrite(),
                relax.transform.StaticPlanBlockMemory(),
            ]
        )(module)
    storages = re.findall(r"alloc_storage\(R\.shape\(\[(\d+)\]\)", planned.script())
    assert storages
    callers = 4 * (int(np.prod(shape)) + 10)  # input and output are not in the plan

    peak = peak_activation_bytes(module)
    assert peak <= sum(map(int, storages)) + callers
    assert peak == 4 * (16 + 16) * 32 * 32  # the skip connection: y and z


def test_mobilenet_v2_takes_the_published_300_million() -> None:
    """The paper's table 2, at 224 x 224: expansion, channels, repeats, stride."""
    table = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]

    def body(builder: Any, x: Any) -> Any:
        def conv(data: Any, inputs: int, outputs: int, size: int, **attributes: int) -> Any:
            groups = attributes.get("groups", 1)
            kernel = weight(outputs, inputs // groups, size, size)
            convolution = op.nn.conv2d(data, kernel, padding=size // 2, **attributes)
            return builder.emit(op.clip(builder.emit(convolution), 0, 6))

        y, channels = conv(x, 3, 32, 3, strides=2), 32
        for expansion, outputs, repeats, first_stride in table:
            for repeat in range(repeats):
                wide = channels * expansion
                z = conv(y, channels, wide, 1) if expansion > 1 else y
                z = conv(z, wide, wide, 3, groups=wide, strides=1 if repeat else first_stride)
                z = conv(z, wide, outputs, 1)
                y, channels = (builder.emit(op.add(y, z)) if repeat else z), outputs
        y = builder.emit(op.mean(conv(y, channels, 1280, 1), [2, 3]))
        return builder.emit(op.matmul(y, weight(1280, 1000)))

    assert count_macs(module_of([(1, 3, 224, 224)], body)) == 300_774_272
