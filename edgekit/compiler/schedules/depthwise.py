"""Depthwise convolutions: every channel has its own kernel, so that nothing is broadcast.

A vector of channels of some neighbouring pixels is summed up in registers. Along a line the
kernel's columns are unrolled, so that pixels share the values that a neighbour loaded. Padding is
copied a few lines at a time.
"""

from __future__ import annotations

from tvm import s_tir

from edgekit.compiler.schedules.blocks import (
    extent_of,
    largest_divisor,
    run_parallel,
    vectorize_panel,
)
from edgekit.compiler.schedules.choices import DepthwiseChoice, on_its_cores
from edgekit.compiler.schedules.generic import order_loops
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed import DEPTHWISE, PAD
from edgekit.compiler.schedules.product import copy_padding, find_product

_MOST_PIXELS = 8


def schedule_depthwise(
    schedule: s_tir.Schedule, machine: Machine, choice: DepthwiseChoice | None = None
) -> bool:
    choice = choice or DepthwiseChoice()
    machine = on_its_cores(machine, choice.parallel)
    product = find_product(schedule, DEPTHWISE)
    if product is None:
        return False
    block = product.block
    n, y, x, channels = schedule.get_loops(product.last)
    width = choice.width or _width(extent_of(schedule, channels), machine)
    together = largest_divisor(extent_of(schedule, y), choice.lines_at_once)
    bands, y = schedule.split(y, [None, together])
    x, pixel = schedule.split(x, [None, choice.pixels or _pixels(extent_of(schedule, x))])
    panel, lane = schedule.split(channels, [None, width])
    schedule.reorder(n, bands, y, panel, x, pixel, lane)
    around = run_parallel(schedule, [n, bands], block.work, machine)
    schedule.compute_at(block.handle, x, preserve_unit_loops=True)
    schedule.set_scope(block.handle, 0, "local")
    one, line, neighbour, vector, ky, kx = schedule.get_loops(block.handle)[-6:]
    schedule.reorder(ky, kx, one, line, neighbour, vector)
    for loop in (vector, lane):
        vectorize_panel(schedule, loop, machine)
    for loop in (kx, one, line, neighbour, pixel):
        schedule.unroll(loop)
    schedule.decompose_reduction(block.handle, ky)
    for other in product.others:
        if other.name == PAD:
            copy_padding(schedule, other, around, machine)
        else:
            order_loops(schedule, other, machine)
    return True


def _width(channels: int, machine: Machine) -> int:
    """Return the fewest vectors for all channels, of equal ones the narrowest."""
    widths = [w for w in range(1, 2 * machine.lanes + 1) if channels % w == 0]
    return min(widths, key=lambda width: (channels // width * -(-width // machine.lanes), width))


def _pixels(pixels: int) -> int:
    """Return the most pixels that divide the line; 4, with a remainder, where only a few do."""
    divisor = largest_divisor(pixels, _MOST_PIXELS)
    return divisor if divisor > 2 or pixels < 4 else 4
