"""Every quantised TFLite operator with random shapes, scales and zero points, from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.tflite_models import Op, T, constant, tflite_bytes


@dataclass(frozen=True)
class Drawn:
    content: bytes
    feeds: Mapping[str, np.ndarray]


class Dice:
    """Draws sizes, scales and stored values of one type."""

    def __init__(self, seed: int, dtype: str = "int8") -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = dtype
        self._limits = np.iinfo(dtype)

    def size(self, low: int = 1, high: int = 8) -> int:
        return int(self.random.integers(low, high + 1))

    def shape(self, low: int = 1, high: int = 4) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(self.size(low, high)))

    def image(self) -> tuple[int, int, int, int]:
        return self.size(1, 2), self.size(3, 9), self.size(3, 9), self.size()

    def scale(self, low: float = 0.003, high: float = 0.2) -> float:
        return float(np.float32(np.exp(self.random.uniform(np.log(low), np.log(high)))))

    def zero(self) -> int:
        return int(self.random.integers(self._limits.min, self._limits.max + 1))

    def stored(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.random.integers(self._limits.min, self._limits.max + 1, shape).astype(
            self.dtype
        )

    def tensor(self, name: str, shape: tuple[int, ...] = (), like: T | None = None) -> T:
        if like is not None:
            return T(name, shape, self.dtype, scale=like.scale, zero=like.zero)
        return T(name, shape, self.dtype, scale=self.scale(), zero=self.zero())

    def flag(self) -> bool:
        return bool(self.random.integers(2))

    def one_of(self, *values: Any) -> Any:
        return values[self.size(0, len(values) - 1)]


Draw = Callable[[Dice], tuple[list[T], Op]]


def drawn(name: str, seed: int) -> Drawn:
    dice = Dice(seed * 1000 + len(name))
    tensors, operator = CASES[name](dice)
    outputs = {tensor.name for tensor in tensors} & set(operator.outputs)
    given = [t for t in tensors if t.data is None and t.name not in outputs]
    content = tflite_bytes(tensors, [operator], [t.name for t in given], operator.outputs)
    return Drawn(content, {tensor.name: dice.stored(tensor.shape) for tensor in given})


def _unary(name: str, same: bool = False, **options: Any) -> Draw:
    def draw(dice: Dice) -> tuple[list[T], Op]:
        x = dice.tensor("x", dice.shape())
        return [x, dice.tensor("r", like=x if same else None)], Op(name, ("x",), ("r",), options)

    return draw


def _into(name: str, scale: float, zero: int, **options: Any) -> Draw:
    """Into the quantisation that TFLite prescribes."""

    def draw(dice: Dice) -> tuple[list[T], Op]:
        x = dice.tensor("x", dice.shape(2))
        return [x, T("r", (), "int8", scale=scale, zero=zero)], Op(name, ("x",), ("r",), options)

    return draw


def _broadcast(dice: Dice) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = dice.shape()
    sides = [tuple(1 if dice.size(0, 3) == 0 else e for e in shape) for _ in range(2)]
    return sides[0], sides[1]


def _binary(name: str, table: str = "", *, same: bool = False, logical: bool = False) -> Draw:
    def draw(dice: Dice) -> tuple[list[T], Op]:
        left, right = _broadcast(dice)
        x = dice.tensor("x", left)
        like = x if same else None
        options: dict[str, Any] = {"table": table} if table else {}
        if table in ("AddOptions", "SubOptions", "MulOptions"):
            options["fusedActivationFunction"] = dice.one_of(0, 1, 2, 3)
        result = T("r", (), "bool") if logical else dice.tensor("r", like=like)
        return [x, dice.tensor("y", right, like), result], Op(name, ("x", "y"), ("r",), options)

    return draw


def _reduce(name: str, *, same: bool = False) -> Draw:
    def draw(dice: Dice) -> tuple[list[T], Op]:
        x = dice.tensor("x", dice.shape())
        rank = len(x.shape)
        axes = np.sort(dice.random.permutation(rank)[: dice.size(1, rank)]).astype("int32")
        options = {"table": "ReducerOptions", "keepDims": dice.flag()}
        tensors = [x, constant("a", axes), dice.tensor("r", like=x if same else None)]
        return tensors, Op(name, ("x", "a"), ("r",), options)

    return draw


def _window(dice: Dice) -> dict[str, Any]:
    return {
        "padding": dice.one_of(0, 1),
        "strideH": dice.size(1, 2),
        "strideW": dice.size(1, 2),
        "fusedActivationFunction": dice.one_of(0, 1, 2, 3),
    }


def _pool(name: str) -> Draw:
    def draw(dice: Dice) -> tuple[list[T], Op]:
        x = dice.tensor("x", dice.image())
        options = {"table": "Pool2DOptions", **_window(dice)}
        options |= {"filterHeight": dice.size(1, 3), "filterWidth": dice.size(1, 3)}
        return [x, dice.tensor("r", like=x)], Op(name, ("x",), ("r",), options)

    return draw


def _weights(
    dice: Dice, shape: tuple[int, ...], axis: int, x: T, channels: int, biased: bool = False
) -> tuple[list[T], tuple[str, ...]]:
    """Weights of one scale or one a channel, and a bias or none."""
    each = dice.flag()
    scales = tuple(dice.scale(0.002, 0.05) for _ in range(channels if each else 1))
    values = dice.random.integers(-127, 128, shape).astype("int8")
    weights = constant("w", values, scale=scales if each else scales[0], axis=axis)
    if not biased and dice.flag():
        return [weights], ("w",)
    biases = dice.random.integers(-2000, 2000, channels).astype("int32")
    steps = tuple(scale * float(x.scale or 0) for scale in scales)  # type: ignore[arg-type]
    bias = constant("b", biases, scale=steps if each else steps[0])
    return [weights, bias], ("w", "b")


def _convolution(dice: Dice) -> tuple[list[T], Op]:
    x, channels = dice.tensor("x", dice.image()), dice.size()
    kernel = (dice.size(1, 3), dice.size(1, 3))
    learnt, names = _weights(dice, (channels, *kernel, x.shape[3]), 0, x, channels, biased=True)
    options = {"table": "Conv2DOptions", **_window(dice)}
    return [x, *learnt, dice.tensor("r")], Op("CONV_2D", ("x", *names), ("r",), options)


def _depthwise(dice: Dice) -> tuple[list[T], Op]:
    x, times = dice.tensor("x", dice.image()), dice.size(1, 3)
    channels, kernel = x.shape[3] * times, (dice.size(1, 3), dice.size(1, 3))
    learnt, names = _weights(dice, (1, *kernel, channels), 3, x, channels)
    options = {"table": "DepthwiseConv2DOptions", "depthMultiplier": times, **_window(dice)}
    operator = Op("DEPTHWISE_CONV_2D", ("x", *names), ("r",), options)
    return [x, *learnt, dice.tensor("r")], operator


def _dense(dice: Dice) -> tuple[list[T], Op]:
    x, units = dice.tensor("x", (dice.size(), dice.size(1, 60))), dice.size()
    learnt, names = _weights(dice, (units, x.shape[1]), 0, x, units)
    options = {"table": "FullyConnectedOptions", "fusedActivationFunction": dice.one_of(0, 1, 2, 3)}
    return [x, *learnt, dice.tensor("r")], Op("FULLY_CONNECTED", ("x", *names), ("r",), options)


def _transposed(dice: Dice) -> tuple[list[T], Op]:
    x, channels = dice.tensor("x", dice.image()), dice.size()
    kernel, stride = (dice.size(2, 3), dice.size(2, 3)), dice.size(1, 2)
    learnt, _ = _weights(dice, (channels, *kernel, x.shape[3]), 0, x, channels)
    extents = [x.shape[0], x.shape[1] * stride, x.shape[2] * stride, channels]
    options = {"table": "TransposeConvOptions", "padding": 0}
    options |= {"strideH": stride, "strideW": stride}
    shape = constant("s", np.array(extents, "int32"))
    operator = Op("TRANSPOSE_CONV", ("s", "w", "x"), ("r",), options)
    return [shape, learnt[0], x, dice.tensor("r")], operator


def _hard_swish(dice: Dice) -> tuple[list[T], Op]:
    """LiteRT refuses others: what comes in has at most the scale of what comes out."""
    low, high = sorted([dice.scale(), dice.scale()])
    x = T("x", dice.shape(), "int8", scale=low, zero=dice.zero())
    result = T("r", (), "int8", scale=high, zero=dice.zero())
    return [x, result], Op("HARD_SWISH", ("x",), ("r",))


def _arg(name: str, table: str) -> Draw:
    def draw(dice: Dice) -> tuple[list[T], Op]:
        x = dice.tensor("x", dice.shape(2))
        axis = constant("a", np.int32(dice.size(0, len(x.shape) - 1)))
        options = {"table": table, "outputType": 4}
        return [x, axis, T("r", (), "int64")], Op(name, ("x", "a"), ("r",), options)

    return draw


def _concatenation(dice: Dice) -> tuple[list[T], Op]:
    shape = dice.shape()
    axis = dice.size(0, len(shape) - 1)
    first = dice.tensor("p0", shape)
    others = [
        dice.tensor(f"p{k}", (*shape[:axis], dice.size(), *shape[axis + 1 :]), first)
        for k in range(1, dice.size(2, 4))
    ]
    names = tuple(tensor.name for tensor in (first, *others))
    options = {"table": "ConcatenationOptions", "axis": axis}
    tensors = [first, *others, dice.tensor("r", like=first)]
    return tensors, Op("CONCATENATION", names, ("r",), options)


def _pad(dice: Dice) -> tuple[list[T], Op]:
    x = dice.tensor("x", dice.shape())
    widths = constant("p", dice.random.integers(0, 4, (len(x.shape), 2)).astype("int32"))
    return [x, widths, dice.tensor("r", like=x)], Op("PAD", ("x", "p"), ("r",))


def _resize(name: str, table: str) -> Draw:
    def draw(dice: Dice) -> tuple[list[T], Op]:
        x = dice.tensor("x", dice.image())
        size = constant("s", dice.random.integers(1, 13, 2).astype("int32"))
        mode = dice.one_of({}, {"alignCorners": True}, {"halfPixelCenters": True})
        tensors = [x, size, dice.tensor("r", like=x)]
        return tensors, Op(name, ("x", "s"), ("r",), {"table": table, **mode})

    return draw


def _dequantize(dice: Dice) -> tuple[list[T], Op]:
    return [dice.tensor("x", dice.shape()), T("r")], Op("DEQUANTIZE", ("x",), ("r",))


CASES: Mapping[str, Draw] = {
    "ABS": _unary("ABS"),
    "ADD": _binary("ADD", "AddOptions"),
    "ARG_MAX": _arg("ARG_MAX", "ArgMaxOptions"),
    "ARG_MIN": _arg("ARG_MIN", "ArgMinOptions"),
    "AVERAGE_POOL_2D": _pool("AVERAGE_POOL_2D"),
    "CONCATENATION": _concatenation,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "DEQUANTIZE": _dequantize,
    "EQUAL": _binary("EQUAL", logical=True),
    "EXP": _unary("EXP"),
    "FULLY_CONNECTED": _dense,
    "GREATER": _binary("GREATER", logical=True),
    "GREATER_EQUAL": _binary("GREATER_EQUAL", logical=True),
    "HARD_SWISH": _hard_swish,
    "LEAKY_RELU": _unary("LEAKY_RELU", table="LeakyReluOptions", alpha=0.17),
    "LESS": _binary("LESS", logical=True),
    "LESS_EQUAL": _binary("LESS_EQUAL", logical=True),
    "LOGISTIC": _into("LOGISTIC", 1 / 256, -128),
    "LOG_SOFTMAX": _into("LOG_SOFTMAX", 16 / 256, 127),
    "MAXIMUM": _binary("MAXIMUM", same=True),
    "MAX_POOL_2D": _pool("MAX_POOL_2D"),
    "MEAN": _reduce("MEAN"),
    "MINIMUM": _binary("MINIMUM", same=True),
    "MUL": _binary("MUL", "MulOptions"),
    "NOT_EQUAL": _binary("NOT_EQUAL", logical=True),
    "PAD": _pad,
    "QUANTIZE": _unary("QUANTIZE"),
    "REDUCE_MAX": _reduce("REDUCE_MAX", same=True),
    "REDUCE_MIN": _reduce("REDUCE_MIN", same=True),
    "RELU": _unary("RELU"),
    "RELU6": _unary("RELU6"),
    "RELU_N1_TO_1": _unary("RELU_N1_TO_1"),
    "RESIZE_BILINEAR": _resize("RESIZE_BILINEAR", "ResizeBilinearOptions"),
    "RESIZE_NEAREST_NEIGHBOR": _resize("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
    "SOFTMAX": _into("SOFTMAX", 1 / 256, -128, table="SoftmaxOptions", beta=1.0),
    "SQUARED_DIFFERENCE": _binary("SQUARED_DIFFERENCE"),
    "SUB": _binary("SUB", "SubOptions"),
    "TANH": _into("TANH", 1 / 128, 0),
    "TRANSPOSE_CONV": _transposed,
}
"""The cases by the operator's name: all that are computed, and some that only move values."""
