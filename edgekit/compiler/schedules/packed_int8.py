"""Convolutions and matrix products of int8, as TIR with block names that the rules recognise.

Operands are in the instruction's layout (`dot_products.py`): the image in groups of neighbours, the
weights in vectors with a group for each lane. A group of the image runs over channels and, where
they are few, from one pixel into the next: three channels and a kernel three wide are nine numbers,
summed up in three steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import te, tirx

from edgekit.compiler.schedules.dot_products import DotProduct
from edgekit.compiler.schedules.packed import PAD, TileOf, output_size
from edgekit.compiler.schedules.packed import depthwise as float_depthwise
from edgekit.compiler.schedules.problem import Window

CONVOLUTION, DENSE = "edgekit_int8_convolution", "edgekit_int8_dense"
IMAGE, CORRECT, WHOLE = (f"edgekit_int8_{name}" for name in ("image", "correct", "whole"))
"""Names of blocks."""


@dataclass(frozen=True)
class Columns:
    """The results of a product, and how its weights are packed for them."""

    count: int
    tile_of: TileOf
    dot: DotProduct


@dataclass(frozen=True)
class Weights:
    """(panels, KH, taps, words, vectors, …): the last axes are the instruction's own."""

    packed: np.ndarray
    corrections: np.ndarray | None
    """The numbers that undo what the raised image has added to each column."""


@dataclass(frozen=True)
class PaddedWindow:
    """A window with so many taps in each line; padding is the zero point."""

    window: Window
    taps: int
    zero_point: int


def flows(inputs: int, dot: DotProduct) -> bool:
    """Return whether groups run from one pixel into the next."""
    return inputs % dot.group != 0


def words_of(taps: int, inputs: int, dilation: int, dot: DotProduct) -> tuple[int, int, int]:
    """Return the pieces of a kernel's line: their count, and the numbers and groups of each."""
    pieces = 1 if flows(inputs, dot) and dilation == 1 else taps
    numbers = inputs * taps // pieces
    return pieces, numbers, -(-numbers // dot.group)


def pack(weight: np.ndarray, width: int, dilation: int, dot: DotProduct) -> Weights:
    """Pack (KH, KW, C, O) into panels of `width` columns."""
    rows, taps, inputs, outputs = weight.shape
    pieces, numbers, words = words_of(taps, inputs, dilation, dot)
    lines = weight.reshape(rows, pieces, numbers, outputs)
    panels = -(-outputs // width)
    filled = np.pad(
        lines,
        ((0, 0), (0, 0), (0, words * dot.group - numbers), (0, panels * width - outputs)),
    )
    apart = filled.reshape(
        *(rows, pieces, words, dot.runs, dot.run, panels, width // dot.lanes, dot.lanes)
    )
    # (panels, rows, pieces, words, vectors, runs, lanes, run)
    packed = np.ascontiguousarray(apart.transpose(5, 0, 1, 2, 6, 3, 7, 4))
    sums = weight.sum(axis=(0, 1, 2), dtype="int32")
    return Weights(
        packed.reshape(*packed.shape[:5], *dot.weights), -dot.raised * sums if dot.raised else None
    )


def convolution(
    data: Any,
    weight: Any,
    corrections: Any | None,
    window: PaddedWindow,
    columns: Columns,
) -> Any:
    """Convolve `data` (N, H, W, C)."""
    dot, taps = columns.dot, window.taps
    batch, height, width, inputs = (int(extent) for extent in data.shape)
    panels, rows, pieces, words, vectors = (int(extent) for extent in weight.shape[:5])
    (down, right), (skip_y, skip_x) = window.window.strides, window.window.dilation
    flowing = flows(inputs, dot)
    top, left, bottom, end = window.window.padding
    out_height, out_width = output_size((height, width), (rows, taps), window.window)
    lying = out_width == 1 < out_height
    pixels = columns.tile_of(*((1, out_height) if lying else (out_height, out_width))).pixels
    more_y = -out_height % pixels if lying else 0
    more_x = 0 if lying else -out_width % pixels
    beyond = words * dot.group - inputs * taps // pieces
    slack = -(-beyond // inputs) if flowing else 0
    image = _image(
        data,
        (top, left, bottom + more_y * down, end + more_x * right + slack),
        window.zero_point,
        dot,
    )
    ky, kx = te.reduce_axis((0, rows), "ky"), te.reduce_axis((0, pieces), "kx")
    word = te.reduce_axis((0, words), "word")
    places = [te.reduce_axis((0, extent), "place") for extent in dot.places]
    tile = vectors * dot.lanes

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        number = word * dot.group + dot.place(*places)
        line, pixel = y * down + ky * skip_y, x * right + kx * skip_x
        if flowing:
            number = pixel * inputs + number
            pixel, number = tirx.floordiv(number, inputs), tirx.floormod(number, inputs)
        column = tirx.floormod(o, tile)
        vector, lane = tirx.floordiv(column, dot.lanes), tirx.floormod(column, dot.lanes)
        at = (tirx.floordiv(o, tile), ky, kx, word, vector, *dot.weight(lane, *places))
        product = image[n, line, pixel, number].astype("int32") * weight[at].astype("int32")
        return te.sum(product, axis=[ky, kx, word, *places])

    shape = (batch, out_height + more_y, out_width + more_x, panels * tile)
    product = te.compute(shape, element, name=CONVOLUTION)
    return _correct(product, corrections, (batch, out_height, out_width, columns.count))


MOST_EXACT_TAPS = (1 << 24) // (128 * 128)
"""The most products of bytes whose sum float32 holds exactly."""


def depthwise(data: Any, weight: Any, window: Window, zero_point: int) -> Any:
    """Convolve `data` (N, H, W, C) with `weight` (KH, KW, C * multiplier) in float32: small sums of
    whole numbers are exact, and the kernel is the same as for floats."""
    batch, height, width, channels = (int(extent) for extent in data.shape)
    outputs = int(weight.shape[-1])
    top, left, bottom, right = window.padding
    each = outputs // channels

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        line, pixel = y - top, x - left
        inside = _inside(line, height, top, bottom) + _inside(pixel, width, left, right)
        value = data[n, line, pixel, tirx.floordiv(c, each) if each > 1 else c]
        return _where(inside, value.astype("float32"), tirx.const(float(zero_point), "float32"))

    shape = (batch, top + height + bottom, left + width + right, outputs)
    image = te.compute(shape, element, name=PAD)
    sums = float_depthwise(image, weight, replace(window, padding=(0, 0, 0, 0)))
    return te.compute(sums.shape, lambda *i: sums[i].astype("int32"), name=WHOLE)


def dense(data: Any, weight: Any, corrections: Any | None, columns: Columns) -> Any:
    """Multiply `data` (…, K) by `weight` (panels, words, vectors, …)."""
    dot = columns.dot
    *lines, pixels, depth = (int(extent) for extent in data.shape)
    panels, words, vectors = (int(extent) for extent in weight.shape[:3])
    more = -pixels % columns.tile_of(math.prod(lines), pixels).pixels
    beyond = words * dot.group - depth
    image = data
    if more or beyond or dot.image != "int8":

        def copied(*index: Any) -> Any:
            inside = [index[-2] < pixels] if more else []
            inside += [index[-1] < depth] if beyond else []
            return _where(inside, _stored(data[index], dot), tirx.const(dot.raised, dot.image))

        image = te.compute((*lines, pixels + more, depth + beyond), copied, name=IMAGE)
    word = te.reduce_axis((0, words), "word")
    places = [te.reduce_axis((0, extent), "place") for extent in dot.places]
    tile = vectors * dot.lanes

    def element(*index: Any) -> Any:
        *row, o = index
        column = tirx.floormod(o, tile)
        vector, lane = tirx.floordiv(column, dot.lanes), tirx.floormod(column, dot.lanes)
        at = (tirx.floordiv(o, tile), word, vector, *dot.weight(lane, *places))
        number = (*row, word * dot.group + dot.place(*places))
        return te.sum(
            image[number].astype("int32") * weight[at].astype("int32"), axis=[word, *places]
        )

    product = te.compute((*lines, pixels + more, panels * tile), element, name=DENSE)
    return _correct(product, corrections, (*lines, pixels, columns.count))


def _image(data: Any, padding: tuple[int, int, int, int], zero_point: int, dot: DotProduct) -> Any:
    """Return the image in the instruction's format; unchanged if it is in that format."""
    if not any(padding) and dot.image == "int8":
        return data
    top, left, bottom, end = padding
    batch, height, width, channels = (int(extent) for extent in data.shape)
    outside = tirx.const(zero_point + dot.raised, dot.image)

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        line, pixel = y - top, x - left
        inside = _inside(line, height, top, bottom) + _inside(pixel, width, left, end)
        return _where(inside, _stored(data[n, line, pixel, c], dot), outside)

    shape = (batch, top + height + bottom, left + width + end, channels)
    return te.compute(shape, element, name=IMAGE)


def _stored(value: Any, dot: DotProduct) -> Any:
    """Return an int8 in the image's format; raising by 128 flips its highest bit."""
    if dot.raised:
        return value.astype("uint8") ^ tirx.const(dot.raised, "uint8")
    return value if dot.image == "int8" else value.astype(dot.image)


def _inside(place: Any, extent: int, before: int, behind: int) -> list[Any]:
    return ([place >= 0] if before else []) + ([place < extent] if behind else [])


def _where(conditions: list[Any], value: Any, otherwise: Any) -> Any:
    return tirx.if_then_else(tirx.all(*conditions), value, otherwise) if conditions else value


def _correct(product: Any, corrections: Any | None, shape: tuple[int, ...]) -> Any:
    """Remove what the raised image has added, and the excess of the last panel and of the last tile
    of a line."""
    if corrections is not None:
        return te.compute(shape, lambda *i: product[i] + corrections[i[-1]], name=CORRECT)
    if tuple(int(extent) for extent in product.shape) == shape:
        return product
    return te.compute(shape, lambda *i: product[i], name=CORRECT)
