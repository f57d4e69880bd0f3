"""The register tile of a matrix product: some pixels of some channels, kept in registers.

Each step of the sum loads a vector or more of weights, broadcasts one number of each pixel, and
multiplies and adds once for each pixel and vector. The tile is as large as the registers allow,
since more arithmetic then shares the loads. Its pixels are a part of a line or whole lines. Where
they don't divide a line, the line is made longer, and the excess is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from edgekit.base.decode import Range

if TYPE_CHECKING:
    from edgekit.compiler.schedules.machine import Machine

Extent = Annotated[int, Range(1, 1 << 16)]

_MOST_VECTORS = 4
_SPARE_REGISTERS = 2
"""Registers for the broadcast number and for the compiler's other values."""
_LATENCY = 8
"""Sums that must be under way at once, so that none waits for the one before it."""
_LOOP, _TILE, _RESULT = 0.4, 24, 2
"""Instructions around a step, a tile, and a vector of results."""
_NEAREST_BYTES = 32 << 10
"""The size of the first-level cache. Larger panels come from the next one."""
_NEXT_BYTES = 12
"""The bytes that the next cache delivers in the time of one instruction."""
_LONGER_LINE = 1.1
"""The factor that copying the input into longer lines costs."""


@dataclass(frozen=True)
class Tile:
    lines: Extent
    pixels: Extent
    channels: Extent

    @property
    def sums(self) -> int:
        return self.lines * self.pixels


def choose_tile(
    lines: int, pixels: int, channels: int, depth: int, machine: Machine, *, whole: bool = False
) -> Tile:
    """Return the fastest tile for a product over so many lines of pixels, by a count of
    instructions.

    `depth` is the count of numbers that are summed up for each result. With `whole`, the tile's
    channels divide the channels: what is beyond is another group's.
    """
    return rank_tiles(lines, pixels, channels, depth, machine, whole=whole)[0]


def rank_tiles(
    lines: int, pixels: int, channels: int, depth: int, machine: Machine, *, whole: bool = False
) -> list[Tile]:
    """Return every possible tile, the fastest by that count first."""
    widths = _widths(channels, machine, whole)
    tiles = [tile for width in widths for tile in _tiles(lines, pixels, width, machine)]
    return sorted(tiles, key=lambda tile: _cost(lines, pixels, channels, depth, tile, machine))


def choose_pixels(lines: int, pixels: int, width: int, depth: int, machine: Machine) -> Tile:
    """Choose pixels for the panels and lines of packed weights."""
    tiles = [tile for tile in _tiles(lines, pixels, width, machine) if pixels % tile.pixels == 0]
    return min(tiles, key=lambda tile: _cost(lines, pixels, width, depth, tile, machine))


def choose_pairs(pixels: int, channels: int, machine: Machine) -> Tile:
    """Choose a tile for an instruction on two pixels and two channels; lines may be lengthened."""
    widths = [vectors * machine.lanes for vectors in range(1, _MOST_VECTORS + 1)]
    tiles = [tile for width in widths for tile in _pairs(width, machine)]
    return min(tiles, key=lambda tile: _cost_of_pairs(pixels, channels, tile))


def choose_pairs_of(pixels: int, width: int, machine: Machine) -> Tile:
    """Choose pixels for such an instruction, for the panels and lines of packed weights."""
    tiles = [tile for tile in _pairs(width, machine) if pixels % tile.pixels == 0]
    return min(tiles, key=lambda tile: _cost_of_pairs(pixels, width, tile))


def _pairs(width: int, machine: Machine) -> Iterator[Tile]:
    """Yield tiles of pairs: a register holds the sums of two pixels and two channels."""
    columns = -(-width // 2)
    room = max((machine.registers - _SPARE_REGISTERS) // (columns + 1), 1)
    return (Tile(1, 2 * count, width) for count in range(1, room + 1))


def _cost_of_pairs(pixels: int, channels: int, tile: Tile) -> float:
    """Estimate a tile's cost: a pair of pixels is two loads, two vectors of weights are one."""
    across, panels = -(-pixels // tile.pixels), -(-channels // tile.channels)
    step = tile.pixels * tile.channels / 4 + tile.pixels + tile.channels / 4
    return across * panels * step


def _widths(channels: int, machine: Machine, whole: bool) -> list[int]:
    most = _MOST_VECTORS * machine.lanes
    if channels < machine.lanes and not whole:
        # LLVM takes a vector of another width apart.
        return [1 << (channels - 1).bit_length()]
    if whole:
        return [width for width in range(1, min(channels, most) + 1) if channels % width == 0]
    return [vectors * machine.lanes for vectors in range(1, _MOST_VECTORS + 1)]


def _tiles(lines: int, pixels: int, width: int, machine: Machine) -> Iterator[Tile]:
    vectors = -(-width // machine.lanes)
    room = most_sums(vectors, machine)
    for count in range(1, min(pixels, room) + 1):
        yield Tile(1, count, width)
    for count in range(2, min(lines, room // pixels) + 1):
        if lines % count == 0:
            yield Tile(count, pixels, width)


def most_sums(vectors: int, machine: Machine) -> int:
    """Return the most pixels, of so many vectors, that the registers hold with their operands."""
    if machine.multiplies_by_lane:
        # A vector of each pixel's own channels stays in registers, and the weights come and go.
        return max((machine.registers - _SPARE_REGISTERS) // (vectors + 1), 1)
    return max((machine.registers - vectors - _SPARE_REGISTERS) // vectors, 1)


def holds_two_vectors(tile: Tile, machine: Machine) -> bool:
    """Return whether two vectors of each pixel's channels fit next to the sums."""
    vectors = -(-tile.channels // machine.lanes)
    return tile.sums * (vectors + 2) <= machine.registers


def _cost(
    lines: int, pixels: int, channels: int, depth: int, tile: Tile, machine: Machine
) -> float:
    """Estimate one step of the sum everywhere: two instructions of either kind start at a time."""
    vectors = -(-tile.channels // machine.lanes)
    across, panels = -(-pixels // tile.pixels), -(-channels // tile.channels)
    if machine.multiplies_by_lane:
        step = by_lane(tile.sums, vectors) + (_TILE + _RESULT * tile.sums * vectors) / depth
    else:
        arithmetic, loads = tile.sums * vectors, vectors + tile.sums
        step = max(arithmetic, 0.8 * arithmetic + 0.4 * loads)
    step = max(step, _LATENCY)
    if depth * tile.channels * 4 > _NEAREST_BYTES:
        step = max(step, tile.channels * 4 / _NEXT_BYTES)
    longer = _LONGER_LINE if pixels % tile.pixels else 1.0
    return -(-lines // tile.lines) * across * panels * step * longer


def by_lane(sums: int, vectors: int) -> float:
    """Count the instructions of a step where each takes one lane: weights are loaded two vectors at
    a time, pixels for several steps at once."""
    return sums * vectors + vectors / 2 + sums / 6 + _LOOP
