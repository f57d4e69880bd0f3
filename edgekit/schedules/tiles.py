"""The register tile of a matrix product: so many pixels of so many channels, kept in registers.

Each step of the sum loads a vector or more of weights, broadcasts one number of each pixel, and
multiplies and adds once for each pixel and vector. The tile is as large as the registers allow,
since the loads are shared by more arithmetic then. Its pixels are a part of a line that divides
the line, or whole lines: what sticks out would be computed for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgekit.schedules.machine import Machine

_MOST_VECTORS = 4
_SPARE_REGISTERS = 2
"""For the broadcast number, and for what the compiler needs besides."""
_LATENCY = 8
"""Sums that have to be under way at once, so that none waits for the one before it."""
_CUT = 1.4
"""What a tile costs that has to ask whether it sticks out."""


@dataclass(frozen=True)
class Tile:
    lines: int
    pixels: int
    channels: int

    @property
    def sums(self) -> int:
        return self.lines * self.pixels


def choose_tile(
    lines: int, pixels: int, channels: int, machine: Machine, *, whole: bool = False
) -> Tile:
    """The fastest for a product over so many lines of pixels, by a count of instructions.

    With `whole`, the tile's channels divide the channels: what is beyond is another group's.
    """
    widths = _widths(channels, machine, whole)
    tiles = [tile for width in widths for tile in _tiles(lines, pixels, width, machine)]
    return min(tiles, key=lambda tile: _cost(lines, pixels, channels, tile, machine))


def choose_pixels(lines: int, pixels: int, width: int, machine: Machine) -> Tile:
    """The same for a width that is decided: weights are packed already."""
    tiles = _tiles(lines, pixels, width, machine)
    return min(tiles, key=lambda tile: _cost(lines, pixels, width, tile, machine))


def _widths(channels: int, machine: Machine, whole: bool) -> list[int]:
    most = _MOST_VECTORS * machine.lanes
    if whole or channels < machine.lanes:
        return [width for width in range(1, min(channels, most) + 1) if channels % width == 0]
    return [vectors * machine.lanes for vectors in range(1, _MOST_VECTORS + 1)]


def _tiles(lines: int, pixels: int, width: int, machine: Machine) -> Iterator[Tile]:
    vectors = -(-width // machine.lanes)
    room = max((machine.registers - vectors - _SPARE_REGISTERS) // vectors, 1)
    for count in range(1, min(pixels, room) + 1):
        yield Tile(1, count, width)
    for count in range(2, min(lines, room // pixels) + 1):
        if lines % count == 0:
            yield Tile(count, pixels, width)


def _cost(lines: int, pixels: int, channels: int, tile: Tile, machine: Machine) -> float:
    """Of one step of the sum everywhere: two instructions of either kind start at a time."""
    vectors = -(-tile.channels // machine.lanes)
    across, panels = -(-pixels // tile.pixels), -(-channels // tile.channels)
    arithmetic = tile.sums * vectors
    loads = vectors + tile.sums
    step = max(arithmetic, 0.8 * arithmetic + 0.4 * loads, _LATENCY)
    cut = _CUT if pixels % tile.pixels else 1.0
    return -(-lines // tile.lines) * across * panels * step * cut
