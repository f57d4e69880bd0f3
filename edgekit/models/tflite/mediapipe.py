"""MediaPipe's custom operators: crops around landmarks, and a transposed convolution with a bias.

A face mesh with attention looks at lips and eyes again: it turns landmarks into a matrix, takes
pixels through the matrix, and puts the landmarks that it finds there back into the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tflite
from tvm import relax

from edgekit.models import arithmetic
from edgekit.models.tflite.conversion import Conversion
from edgekit.models.tflite.custom_options import (
    LANDMARKS,
    MATRIX,
    SAMPLE,
    SPREAD,
    check_landmarks,
    crop_options,
    spread_options,
)

op = relax.op


class _Use:
    """One use of an operator: its operands and the bytes of its options."""

    def __init__(self, converter: Conversion, operator: tflite.Operator) -> None:
        self.converter = converter
        self.tensors = converter.get_input_tensors(operator)
        (self.target,) = converter.get_output_tensors(operator)
        missing = operator.CustomOptionsIsNone()
        self.stored = b"" if missing else operator.CustomOptionsAsNumpy().tobytes()

    def expr(self, place: int) -> Any:
        return self.converter.get_tensor_expr(self.tensors[place])

    def shape(self, place: int) -> tuple[int, ...]:
        return tuple(int(e) for e in self.converter.get_tensor_shape(self.tensors[place]))

    def emit(self, value: Any) -> Any:
        return self.converter.bb.emit(self.converter.bb.normalize(value))

    def entry(self, matrix: Any, row: int, column: int) -> Any:
        """Return an element of a matrix of four rows, as a vector of one."""
        flat = self.emit(op.reshape(matrix, (16,)))
        place = row * 4 + column
        return self.emit(op.strided_slice(flat, axes=[0], begin=[place], end=[place + 1]))

    def moved(self, matrix: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """Return the places that a matrix moves places to."""
        found = []
        for row in (0, 1):
            across, down, shift = (self.entry(matrix, row, column) for column in (0, 1, 3))
            turned = op.add(op.multiply(across, x), op.multiply(down, y))
            found.append(self.emit(op.add(turned, shift)))
        return found[0], found[1]


def _number(value: float) -> Any:
    return relax.const(np.array(value, "float32"), "float32")


def _matrix(use: _Use) -> Any:
    """Return the matrix from the pixels of a crop to the places of landmarks."""
    options = crop_options(use.stored)
    count = use.shape(0)[1]
    check_landmarks(options, count)
    flat = use.emit(op.reshape(use.expr(0), (count, 3)))

    def column(landmarks: tuple[int, ...], axis: int) -> Any:
        rows = use.emit(op.take(flat, relax.const(np.array(landmarks), "int64"), 0))
        taken = op.strided_slice(rows, axes=[1], begin=[axis], end=[axis + 1])
        return use.emit(op.reshape(taken, (len(landmarks),)))

    across, down = (
        use.emit(op.subtract(column((options.right,), axis), column((options.left,), axis)))
        for axis in (0, 1)
    )
    angle = arithmetic.arc_tangent(use.converter.bb, down, across)
    turn = use.emit(op.subtract(_number(options.rotation), angle))
    cosine, sine = use.emit(op.cos(turn)), use.emit(op.sin(turn))
    x, y = column(options.chosen, 0), column(options.chosen, 1)
    turned = (
        use.emit(op.subtract(op.multiply(cosine, x), op.multiply(sine, y))),
        use.emit(op.add(op.multiply(sine, x), op.multiply(cosine, y))),
    )
    ends = [
        (use.emit(op.min(one, keepdims=True)), use.emit(op.max(one, keepdims=True)))
        for one in turned
    ]
    middle = [use.emit(op.divide(op.add(low, high), _number(2))) for low, high in ends]
    centre = (
        use.emit(op.add(op.multiply(cosine, middle[0]), op.multiply(sine, middle[1]))),
        use.emit(op.subtract(op.multiply(cosine, middle[1]), op.multiply(sine, middle[0]))),
    )
    height, width = options.size
    factors = [
        use.emit(op.multiply(op.subtract(*reversed(pair)), _number(scale / size)))
        for pair, scale, size in zip(ends, reversed(options.scale), (width, height), strict=True)
    ]
    rows = (
        (op.multiply(cosine, factors[0]), op.multiply(sine, factors[1])),
        (op.negative(op.multiply(sine, factors[0])), op.multiply(cosine, factors[1])),
    )
    values = []
    for row, start in zip(rows, centre, strict=True):
        first, second = (use.emit(one) for one in row)
        half = op.add(
            op.multiply(first, _number(width / 2)), op.multiply(second, _number(height / 2))
        )
        zero = relax.const(np.zeros(1, "float32"))
        values += [first, second, zero, use.emit(op.subtract(start, half))]
    values.append(relax.const(np.array([0, 0, 1, 0, 0, 0, 0, 1], "float32")))
    return op.reshape(use.emit(op.concat(values, axis=0)), (1, 4, 4))


def _sample(use: _Use) -> Any:
    """Take pixels at the places that the matrix moves a grid to; zeros lie outside of the image."""
    _, height, width, channels = use.shape(0)
    shape = tuple(int(e) for e in use.converter.get_tensor_shape(use.target))
    down, across = (one.ravel() + 0.5 for one in np.mgrid[: shape[1], : shape[2]])
    places = use.moved(use.expr(1), *(relax.const(one.astype("float32")) for one in (across, down)))
    places = tuple(use.emit(op.subtract(one, _number(0.5))) for one in places)
    pixels = use.emit(op.reshape(use.expr(0), (height * width, channels)))
    inside: Any = None
    corners, shares = [], []
    for one, extent in zip(places, (width, height), strict=True):
        above = op.greater_equal(one, _number(0))
        fits = use.emit(op.logical_and(above, op.less_equal(one, _number(extent - 1))))
        inside = fits if inside is None else use.emit(op.logical_and(inside, fits))
        low = use.emit(op.floor(use.emit(op.where(fits, one, _number(0)))))
        share = op.where(fits, op.subtract(one, low), _number(0))
        shares.append(use.emit(op.reshape(use.emit(share), (-1, 1))))
        first = use.emit(op.astype(low, "int32"))
        second = op.minimum(
            op.add(first, relax.const(1, "int32")), relax.const(extent - 1, "int32")
        )
        corners.append((first, use.emit(second)))

    def pixel(row: Any, column: Any) -> Any:
        place = op.add(op.multiply(row, relax.const(width, "int32")), column)
        return use.emit(op.take(pixels, use.emit(place), 0))

    def between(low: Any, high: Any, share: Any) -> Any:
        rest = op.subtract(_number(1), share)
        return use.emit(op.add(op.multiply(rest, low), op.multiply(share, high)))

    upper, lower = (
        between(pixel(row, corners[0][0]), pixel(row, corners[0][1]), shares[0])
        for row in corners[1]
    )
    mixed = between(upper, lower, shares[1])
    kept = op.where(use.emit(op.reshape(inside, (-1, 1))), mixed, _number(0))
    return op.reshape(use.emit(kept), shape)


def _landmarks(use: _Use) -> Any:
    """Put landmarks of a crop back into the picture; a third coordinate stays."""
    value, columns = use.expr(0), use.shape(0)[-1]
    if columns not in (2, 3):
        raise ValueError(f"its landmarks have {columns} coordinates")
    x, y, *rest = (
        use.emit(op.strided_slice(value, axes=[2], begin=[place], end=[place + 1]))
        for place in range(columns)
    )
    return op.concat([*use.moved(use.expr(1), x, y), *rest], axis=2)


def _spread(use: _Use) -> Any:
    """Return a transposed convolution with a bias."""
    options = spread_options(use.stored)
    weights = use.converter.get_tensor_value(use.tensors[1])
    extents, kernel = use.shape(0)[1:3], weights.shape[1:3]
    cuts = [options.padding(axis, extents[axis], kernel[axis]) for axis in (0, 1)]
    spread = op.nn.conv2d_transpose(
        use.emit(op.permute_dims(use.expr(0), [0, 3, 1, 2])),
        relax.const(np.ascontiguousarray(weights.transpose(3, 0, 1, 2))),
        strides=options.strides,
        padding=(cuts[0][0], cuts[1][0], cuts[0][1], cuts[1][1]),
        data_layout="NCHW",
        kernel_layout="IOHW",
    )
    return op.add(use.emit(op.permute_dims(use.emit(spread), [0, 2, 3, 1])), use.expr(2))


_CONVERTERS: Mapping[str, Callable[[_Use], Any]] = {
    MATRIX: _matrix,
    SAMPLE: _sample,
    LANDMARKS: _landmarks,
    SPREAD: _spread,
}


def converters(converter: Conversion) -> dict[str, Callable[..., Any]]:
    """Return the functions for TVM's table."""

    def made(name: str) -> Callable[..., Any]:
        return lambda op: _CONVERTERS[name](_Use(converter, op))

    return {name: made(name) for name in _CONVERTERS}
