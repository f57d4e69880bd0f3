"""The register tile of a matrix product: so many pixels of so many channels, kept in registers.

Each step of the sum loads a vector or more of weights, broadcasts one number of each pixel, and
multiplies and adds once for each pixel and vector. The tile is as large as the registers allow,
since the loads are shared by more arithmetic then. Its pixels are a part of a line or whole lines;
where they don't divide a line, the line is made longer, and what is too much is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.compiler.schedules.machine import Machine

_MOST_VECTORS = 4
_SPARE_REGISTERS = 2
"""For the broadcast number, and for what the compiler needs besides."""
_LATENCY = 8
"""Sums that have to be under way at once, so that none waits for the one before it."""
_LOOP, _TILE, _RESULT = 0.4, 24, 2
"""Instructions around a step, a tile, and a vector of results."""
_NEAREST_BYTES = 32 << 10
"""What stays in the cache that answers at once. A panel that is larger comes from the next one."""
_NEXT_BYTES = 12
"""That cache gives so many, in the time of one instruction."""
_LONGER_LINE = 1.1
"""What it costs besides to copy the input into longer lines."""


@dataclass(frozen=True)
class Tile:
    lines: int
    pixels: int
    channels: int

    @property
    def sums(self) -> int:
        return self.lines * self.pixels


def choose_tile(
    lines: int, pixels: int, channels: int, depth: int, machine: Machine, *, whole: bool = False
) -> Tile:
    """The fastest for a product over so many lines of pixels, by a count of instructions.

    `depth` is how many numbers are summed up for each result.

    With `whole`, the tile's channels divide the channels: what is beyond is another group's.
    """
    return rank_tiles(lines, pixels, channels, depth, machine, whole=whole)[0]


def rank_tiles(
    lines: int, pixels: int, channels: int, depth: int, machine: Machine, *, whole: bool = False
) -> list[Tile]:
    """Every tile that can be, the fastest by that count first."""
    widths = _widths(channels, machine, whole)
    tiles = [tile for width in widths for tile in _tiles(lines, pixels, width, machine)]
    return sorted(tiles, key=lambda tile: _cost(lines, pixels, channels, depth, tile, machine))


def choose_pixels(lines: int, pixels: int, width: int, depth: int, machine: Machine) -> Tile:
    """The same for panels and lines that are as they are: weights are packed already."""
    tiles = [tile for tile in _tiles(lines, pixels, width, machine) if pixels % tile.pixels == 0]
    return min(tiles, key=lambda tile: _cost(lines, pixels, width, depth, tile, machine))


def choose_pairs(pixels: int, channels: int, machine: Machine) -> Tile:
    """For an instruction that does two pixels by two channels; lines become as long as need be."""
    widths = [vectors * machine.lanes for vectors in range(1, _MOST_VECTORS + 1)]
    tiles = [tile for width in widths for tile in _pairs(width, machine)]
    return min(tiles, key=lambda tile: _cost_of_pairs(pixels, channels, tile))


def choose_pairs_of(pixels: int, width: int, machine: Machine) -> Tile:
    """The same for panels and lines that are as they are."""
    tiles = [tile for tile in _pairs(width, machine) if pixels % tile.pixels == 0]
    return min(tiles, key=lambda tile: _cost_of_pairs(pixels, width, tile))


def _pairs(width: int, machine: Machine) -> Iterator[Tile]:
    """A register has the sums of a pair of either."""
    columns = -(-width // 2)
    room = max((machine.registers - _SPARE_REGISTERS) // (columns + 1), 1)
    return (Tile(1, 2 * count, width) for count in range(1, room + 1))


def _cost_of_pairs(pixels: int, channels: int, tile: Tile) -> float:
    """A pair of pixels is two loads, two vectors of weights are one."""
    across, panels = -(-pixels // tile.pixels), -(-channels // tile.channels)
    step = tile.pixels * tile.channels / 4 + tile.pixels + tile.channels / 4
    return across * panels * step


def _widths(channels: int, machine: Machine, whole: bool) -> list[int]:
    most = _MOST_VECTORS * machine.lanes
    if whole or channels < machine.lanes:
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
    """As many pixels, of so many vectors each, as the registers hold with what they need."""
    if machine.multiplies_by_lane:
        # A vector of each pixel's own channels stays there, and the weights come and go.
        return max((machine.registers - _SPARE_REGISTERS) // (vectors + 1), 1)
    return max((machine.registers - vectors - _SPARE_REGISTERS) // vectors, 1)


def holds_two_vectors(tile: Tile, machine: Machine) -> bool:
    """Of each pixel's own channels, beside the sums."""
    vectors = -(-tile.channels // machine.lanes)
    return tile.sums * (vectors + 2) <= machine.registers


def _cost(
    lines: int, pixels: int, channels: int, depth: int, tile: Tile, machine: Machine
) -> float:
    """Of one step of the sum everywhere: two instructions of either kind start at a time."""
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
    """Instructions of a step where each takes one lane: weights are loaded two vectors at a time,
    pixels for several steps at once."""
    return sums * vectors + vectors / 2 + sums / 6 + _LOOP
