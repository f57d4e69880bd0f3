"""Decodes the weights of a command stream, and puts them from the NPU's order into channels'."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgekit.backends.ethos_u.configuration import Accelerator
from edgekit.backends.ethos_u.stream import (
    OP_DEPTHWISE,
    NotInterpreted,
    Operation,
    check,
    convolutions,
    operations,
    weights_of,
)
from edgekit.backends.ethos_u.vela import Made
from edgekit.base.arrays import Array

Shape = tuple[int, int, int, int]
_FILLING = -1
_FAST_HEADER = 32
"""The bytes before weights in the fast format."""


@dataclass(frozen=True)
class Decoded:
    """The weights of all convolutions, one after the other."""

    weights: Array
    """int8; of each convolution output channel, row, column, input channel."""
    places: tuple[int, ...]
    """The place of each convolution's weights, in the order of the commands."""


def decode(made: Made, accelerator: Accelerator) -> Decoded:
    """Return the weights as the twin reads them; raise NotInterpreted for what it does not run."""
    import numpy as np

    for operation in operations(made.commands):
        check(operation)
    known: dict[tuple[object, ...], int] = {}
    parts: list[Array] = []
    places: list[int] = []
    size = 0
    for operation, memory in convolutions(made):
        stored = weights_of(operation, memory)
        layout = (operation.strides, operation.gaps, operation.is_part_kernel, operation.microblock)
        key = (stored, _shape(operation), operation.output_block, layout)
        if key not in known:
            known[key] = size
            parts.append(_in_channels(operation, stored, accelerator))
            size += parts[-1].size
        places.append(known[key])
    weights = np.concatenate(parts) if parts else np.zeros(1, np.int8)
    return Decoded(weights, tuple(places) or (0,))


def _shape(operation: Operation) -> Shape:
    depth = 1 if operation.command == OP_DEPTHWISE else operation.inputs
    return (operation.outputs, *operation.kernel, depth)


def _in_channels(operation: Operation, stored: tuple[bytes, ...], npu: Accelerator) -> Array:
    import numpy as np

    shape = _shape(operation)
    result: Array = np.zeros(int(np.prod(shape)), np.int8)
    for stream, places in zip(stored, _orders(operation, shape, npu), strict=False):
        decoded = _numbers(stream, operation.has_fast_weights)[: places.size]
        if decoded.size < places.size and int(places[decoded.size :].max()) != _FILLING:
            raise NotInterpreted("it has fewer weights than its convolution takes")
        if decoded.size and not -128 <= int(decoded.min()) <= int(decoded.max()) <= 127:
            raise NotInterpreted("its weights have 9 bits")
        own = places[: decoded.size]
        result[own[own != _FILLING]] = decoded[own != _FILLING]
    return result


def _numbers(stream: bytes, is_fast: bool) -> Array:
    """Decode a stream of weights."""
    import numpy as np
    from ethosu import mlw_codec

    if not is_fast:
        return np.array(mlw_codec.decode(bytearray(stream)), np.int32)
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), bitorder="little")
    is_raw, is_small = bits[0], bits[1]
    if is_raw:
        added = int(np.frombuffer(stream[13:14], np.int8)[0])
        return np.frombuffer(stream[_FAST_HEADER:], np.int8).astype(np.int32) - added
    palette = bits[112:256].reshape(16, 9).astype(np.int32) @ (1 << np.arange(9))
    width = 2 if is_small else 4
    index = bits[256:].reshape(-1, width).astype(np.int32) @ (1 << np.arange(width))
    return np.where(palette & 1, -(palette >> 1), palette >> 1)[index]


def _orders(operation: Operation, shape: Shape, npu: Accelerator) -> Iterator[Array]:
    """Yield the place of each stored weight, or that it is filling, for each stream."""
    import numpy as np

    if not operation.is_u85:
        per_channel = int(np.prod(shape[1:]))
        for core in range(operation.cores):
            channels = np.arange(core, shape[0], operation.cores)
            block = -(-(operation.output_block - core) // operation.cores)
            own = (channels.size, *shape[1:])
            parts = list(_bricks(operation, own, block, npu.output_depth))
            places = np.concatenate(parts) if parts else np.zeros(0, np.int64)
            moved = channels[places // per_channel] * per_channel + places % per_channel
            yield np.where(places == _FILLING, _FILLING, moved)
        return
    order = _OrderU85(operation, shape, npu)
    streams = [np.concatenate(list(order.of_stream(k))) for k in range(npu.cores)]
    if not operation.has_fast_weights or npu.cores == 1:
        yield from streams
        return
    pieces = [np.split(p, range(order.fast_block, p.size, order.fast_block)) for p in streams]
    yield np.concatenate([piece for turn in zip(*pieces, strict=True) for piece in turn])


def _bricks(
    operation: Operation, shape: Shape, output_block: int, output_depth: int
) -> Iterator[Array]:
    """Yield the places of the weights of an U55 or U65, block by block."""
    import numpy as np

    outputs, height, width, inputs = shape
    is_depthwise, part_kernel = operation.command == OP_DEPTHWISE, operation.is_part_kernel
    input_block, input_depth = 16 if part_kernel else 32, 8
    rows, columns = (8 // gap for gap in operation.gaps)
    for first_out in range(0, outputs, output_block):
        depth_out = min(output_block, outputs - first_out)
        for first_in in range(0, 1 if is_depthwise else inputs, input_block):
            depth_in = input_depth if is_depthwise else input_block
            if part_kernel:
                depth_in = min(input_block, inputs - first_in)
            for top in range(0, height, rows):
                for left in range(0, width, columns):
                    tall, wide = min(height - top, rows), min(width - left, columns)
                    elements = tall * wide
                    if part_kernel or is_depthwise:
                        elements = -(-elements // 4) * 4
                    outer = range(0, depth_in if part_kernel else 1, input_depth)
                    inner = range(0, 1 if part_kernel else depth_in, input_depth)
                    a, b, e, i, o, k = np.meshgrid(
                        np.array(outer),
                        np.arange(0, depth_out, output_depth),
                        np.arange(elements),
                        np.array(inner),
                        np.arange(output_depth),
                        np.arange(1 if is_depthwise else input_depth),
                        indexing="ij",
                    )
                    ky, kx = e // wide, e % wide
                    z, c = first_out + b + o, first_in + a + i + k
                    valid = (z < outputs) & (c < inputs) & (ky < tall)
                    place = ((z * height + top + ky) * width + left + kx) * inputs + c
                    yield np.where(valid, place, _FILLING).reshape(-1)


class _OrderU85:
    """The order of an U85's weights, which walks through the window and the inputs in turns."""

    def __init__(self, operation: Operation, shape: Shape, npu: Accelerator) -> None:
        self._shape = shape
        self._depthwise = operation.command == OP_DEPTHWISE
        self._streams = npu.cores
        self._output_block = operation.output_block
        self._output_depth = npu.macs // 8 // operation.microblock
        self._subkernel = tuple(8 // gap for gap in operation.gaps)
        sparse, part_kernel = operation.has_sparse_weights, operation.is_part_kernel
        self._strides = operation.strides if part_kernel or self._depthwise else (1, 1)
        self._inner_step = 16 if sparse else 8
        if part_kernel:
            self._input_block, self._round = 16, 10 if sparse else 5
        elif self._depthwise:
            self._input_block, self._round, self._inner_step = 1, 10, 1
        else:
            narrow = npu.macs <= 256 and self._output_depth == 16
            self._input_block, self._round = 128 if sparse else 32 if narrow else 64, 1
        self._filling = 0
        if self._depthwise and npu.macs > 256:
            self._filling = (2 if npu.macs <= 512 else 6) * self._output_depth // npu.cores

    @property
    def fast_block(self) -> int:
        """Return the weights of one stream before those of the next, in the fast format."""
        return self._output_depth * self._input_block * self._round // self._streams

    def of_stream(self, stream: int) -> Iterator[Array]:
        outputs, height, width, inputs = self._shape
        down, right = self._subkernel
        blocks = list(range(0, inputs, self._input_block))
        for turn, first_out in enumerate(range(0, outputs, self._output_block)):
            end = min(self._output_block, outputs - first_out)
            for first_in in reversed(blocks) if turn % 2 else blocks:
                for left in range(0, width, right):
                    for top in range(0, height, down):
                        taps = self._taps(min(height - top, down), min(width - left, right))
                        for outer in range(0, end, self._output_depth):
                            yield from self._block(
                                first_out + outer, first_in, (top, left), taps, stream
                            )

    def _taps(self, tall: int, wide: int) -> list[tuple[int, int]]:
        """Return the rows and columns of a part of the window, in the order of their weights."""
        down, right = self._strides
        found = []
        for first_y in range(down):
            for first_x in range(right):
                columns = range(first_x, wide, right)
                for row, y in enumerate(range(first_y, tall, down)):
                    found += [(y, x) for x in (reversed(columns) if row % 2 else columns)]
        return found

    def _block(
        self,
        first_out: int,
        first_in: int,
        corner: tuple[int, int],
        taps: list[tuple[int, int]],
        stream: int,
    ) -> Iterator[Array]:
        import numpy as np

        outputs, height, width, inputs = self._shape
        filling = np.full(self._filling, _FILLING)
        left = -(-len(taps) // self._round) * self._round
        for y, x in taps:
            left -= 1
            i, b, o, k = np.meshgrid(
                np.arange(0, self._input_block, self._inner_step),
                np.arange(4 * stream, self._output_depth, 4 * self._streams),
                np.arange(4),
                np.arange(self._inner_step),
                indexing="ij",
            )
            z, c = first_out + b + o, first_in + i + k
            place = ((z * height + corner[0] + y) * width + corner[1] + x) * inputs + c
            yield np.where((z < outputs) & (c < inputs), place, _FILLING).reshape(-1)
            if self._depthwise and left % self._round == 0:
                yield filling
        if left > 0:
            yield np.full(left * self._input_block * self._output_depth // self._streams, _FILLING)
            yield filling
