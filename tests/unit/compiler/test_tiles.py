"""Register tiles: whatever the product's size, they fit into the registers and its lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.tiles import Tile, choose_pixels, choose_tile

AVX512, AVX2 = Machine(16, 32, 1), Machine(8, 16, 1)
SSE, NEON = Machine(4, 16, 1), Machine(4, 32, 1, multiplies_by_lane=True)
MACHINES = st.sampled_from([AVX512, AVX2, SSE, NEON])
EXTENTS = st.one_of(st.integers(1, 130), st.sampled_from([224, 1000, 4096, 12544]))


def vectors(tile: Tile, machine: Machine) -> int:
    return -(-tile.channels // machine.lanes)


def registers(tile: Tile, machine: Machine) -> int:
    """All sums, and one row of weights."""
    return (tile.sums + 1) * vectors(tile, machine)


@given(EXTENTS, EXTENTS, EXTENTS, EXTENTS, MACHINES, st.booleans())
def test_a_tile_fits_into_the_registers(
    lines: int, pixels: int, channels: int, depth: int, machine: Machine, whole: bool
) -> None:
    tile = choose_tile(lines, pixels, channels, depth, machine, whole=whole)

    assert tile.lines >= 1
    assert tile.pixels >= 1
    assert registers(tile, machine) < machine.registers


@given(EXTENTS, EXTENTS, EXTENTS, EXTENTS, MACHINES)
def test_a_tile_of_several_lines_takes_whole_ones_that_divide_the_image(
    lines: int, pixels: int, channels: int, depth: int, machine: Machine
) -> None:
    tile = choose_tile(lines, pixels, channels, depth, machine)

    assert tile.pixels <= pixels
    if tile.lines > 1:
        assert tile.pixels == pixels
        assert lines % tile.lines == 0


@given(EXTENTS, EXTENTS, EXTENTS, EXTENTS, MACHINES)
def test_no_tile_reaches_into_another_group(
    lines: int, pixels: int, channels: int, depth: int, machine: Machine
) -> None:
    tile = choose_tile(lines, pixels, channels, depth, machine, whole=True)

    assert channels % tile.channels == 0


@given(EXTENTS, EXTENTS, st.integers(1, 64), EXTENTS, MACHINES)
def test_packed_weights_keep_their_width_and_lines_are_divided(
    lines: int, pixels: int, width: int, depth: int, machine: Machine
) -> None:
    tile = choose_pixels(lines, pixels, width, depth, machine)

    assert tile.channels == width
    assert pixels % tile.pixels == 0
    assert lines % tile.lines == 0


@given(EXTENTS, EXTENTS, EXTENTS, EXTENTS, MACHINES, st.booleans())
def test_the_schedule_finds_the_tile_for_which_the_weights_were_packed(
    lines: int, pixels: int, channels: int, depth: int, machine: Machine, whole: bool
) -> None:
    """The tile divides lines that were made longer."""
    tile = choose_tile(lines, pixels, channels, depth, machine, whole=whole)
    longer = -(-pixels // tile.pixels) * tile.pixels

    assert choose_pixels(lines, longer, tile.channels, depth, machine).sums >= 1
    assert longer - pixels < tile.pixels


@pytest.mark.parametrize("machine", [AVX512, AVX2, SSE, NEON])
def test_enough_sums_are_under_way_to_keep_the_arithmetic_busy(machine: Machine) -> None:
    tile = choose_tile(56, 56, 256, 1152, machine)

    assert tile.sums * vectors(tile, machine) >= 8


def test_a_single_line_of_a_matrix_product_takes_wide_panels() -> None:
    assert choose_tile(1, 1, 1000, 1280, AVX512).channels > AVX512.lanes
