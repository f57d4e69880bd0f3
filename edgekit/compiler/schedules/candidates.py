"""Alternatives to a rule's own choice that are worth measuring for a kernel, likely ones first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgekit.compiler.schedules.choices import (
    Choice,
    DepthwiseChoice,
    GenericChoice,
    ProductChoice,
)
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.problem import Problem
from edgekit.compiler.schedules.tiles import Tile, rank_tiles

_TILES = 5
_LARGEST_OTHER_TILES = 32 << 20
"""The most bytes of weights for tiles of other widths: each width sends them once."""
_PARALLEL = (20_000, 5_000_000)
"""The range of work in which waking other cores may or may not pay."""


def product_candidates(problem: Problem, lines: int, pixels: int, machine: Machine) -> list[Choice]:
    """Return choices for a product of `lines` by `pixels` results as the rule sees them, its own
    choice first."""
    *inner, columns = problem.weight
    bytes_of_weights = math.prod(problem.weight) * 4
    tiles = rank_tiles(
        *(lines, pixels, columns // problem.groups, math.prod(inner), machine),
        whole=problem.groups > 1,
    )
    own, *others = tiles
    if bytes_of_weights > _LARGEST_OTHER_TILES:
        others = [tile for tile in others if tile.channels == own.channels]
    found: list[Choice] = [ProductChoice()]
    found += [ProductChoice(tile=tile) for tile in _different(own, others)]
    outside = bytes_of_weights > machine.near_bytes
    found.append(ProductChoice(panels_outside=not outside))
    found += [ProductChoice(unrolled=steps) for steps in (2, 8)]
    if not outside and lines > 8:
        found += [ProductChoice(lines_at_once=count) for count in (2, 16)]
    work = lines * pixels * math.prod(problem.weight)
    return found + [ProductChoice(parallel=p) for p in _cores_worth_trying(work, machine)]


def depthwise_candidates(channels: int, pixels: int, work: int, machine: Machine) -> list[Choice]:
    widths = [width for vectors in (1, 2) if channels % (width := vectors * machine.lanes) == 0]
    counts = [count for count in (2, 4, 7, 8) if count <= pixels]
    found: list[Choice] = [DepthwiseChoice()]
    found += [DepthwiseChoice(width=w, pixels=c) for w in widths for c in counts]
    found += [DepthwiseChoice(lines_at_once=count) for count in (2, 16)]
    return found + [DepthwiseChoice(parallel=p) for p in _cores_worth_trying(work, machine)]


def generic_candidates(work: int, machine: Machine) -> list[Choice]:
    found: list[Choice] = [GenericChoice()]
    found += [GenericChoice(lanes=machine.lanes * count) for count in (2, 4)]
    if machine.lanes > 8:
        found.append(GenericChoice(lanes=machine.lanes // 2))
    found.append(GenericChoice(steps_apart=True))
    return found + [GenericChoice(parallel=p) for p in _cores_worth_trying(work, machine)]


def _different(own: Tile, others: Sequence[Tile]) -> list[Tile]:
    """Return the likeliest tiles, not all of one width, for which the count is least reliable."""
    found: list[Tile] = []
    for tile in others:
        of_this_width = sum(tile.channels == other.channels for other in found)
        if tile != own and of_this_width < 2:
            found.append(tile)
    return found[:_TILES]


def _cores_worth_trying(work: int, machine: Machine) -> list[bool]:
    least, most = _PARALLEL
    if machine.cores == 1 or not least <= work <= most:
        return []
    return [work < machine.parallel_work]
