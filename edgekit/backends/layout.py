"""Place the boxes of a graph in layers, from top to bottom, with few crossing arrows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_GAP = 18.0
"""The gap between neighbours in a layer."""
_LAYER_GAP = 34.0
_BEND_WIDTH = 6.0
_SWEEPS = 6
_MARGIN = 16.0


@dataclass(frozen=True)
class Size:
    width: float
    height: float


@dataclass(frozen=True)
class Point:
    x: float
    y: float


@dataclass(frozen=True)
class Layout:
    places: tuple[Point, ...]
    """The upper left corner of each box."""
    routes: Mapping[tuple[int, int], tuple[Point, ...]]
    """The points that an arrow (from, to) passes, its ends included."""
    size: Size


@dataclass
class _Stop:
    """A box, or a bend of an arrow that passes a layer."""

    width: float
    layer: int
    x: float = 0.0
    """The position of the middle."""


def lay_out(sizes: Sequence[Size], reads: Sequence[Sequence[int]]) -> Layout:
    """Place boxes, each of which reads only boxes before it."""
    layers = _layers(reads)
    stops = [_Stop(size.width, layer) for size, layer in zip(sizes, layers, strict=True)]
    chains: dict[tuple[int, int], list[int]] = {}
    above: list[list[int]] = [[] for _ in stops]
    below: list[list[int]] = [[] for _ in stops]
    for reader, producers in enumerate(reads):
        for producer in producers:
            chain = [producer]
            for layer in range(layers[producer] + 1, layers[reader]):
                stops.append(_Stop(_BEND_WIDTH, layer))
                above.append([])
                below.append([])
                chain.append(len(stops) - 1)
            chain.append(reader)
            chains[producer, reader] = chain
            for upper, lower in pairwise(chain):
                below[upper].append(lower)
                above[lower].append(upper)
    rows = _rows(stops, above, below)
    _spread(stops, rows, above, below)
    return _placed(sizes, stops, rows, chains)


def _layers(reads: Sequence[Sequence[int]]) -> list[int]:
    layers: list[int] = []
    for producers in reads:
        layers.append(max((layers[producer] + 1 for producer in producers), default=0))
    first_reader: dict[int, int] = {}
    for reader, producers in enumerate(reads):
        for producer in producers:
            first_reader[producer] = min(first_reader.get(producer, layers[reader]), layers[reader])
    # A box that reads nothing goes right above its reader.
    return [
        first_reader.get(index, 1) - 1 if not producers else layers[index]
        for index, producers in enumerate(reads)
    ]


def _rows(
    stops: Sequence[_Stop], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Order each layer so that a box is near the middle of its neighbours."""
    rows: list[list[int]] = [[] for _ in range(max((s.layer for s in stops), default=-1) + 1)]
    for index, stop in enumerate(stops):
        rows[stop.layer].append(index)
    rank = {index: float(place) for row in rows for place, index in enumerate(row)}
    for sweep in range(_SWEEPS):
        neighbours, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in order:
            middle = {
                index: _mean([rank[n] for n in neighbours[index]], rank[index]) for index in row
            }
            row.sort(key=lambda index: middle[index])
            rank.update((index, float(place)) for place, index in enumerate(row))
    return rows


def _spread(
    stops: Sequence[_Stop],
    rows: Sequence[Sequence[int]],
    above: Sequence[Sequence[int]],
    below: Sequence[Sequence[int]],
) -> None:
    """Move each box as near to the middle of its neighbours as that order allows."""
    for row in rows:
        _pack(stops, row, [0.0] * len(row))
    for sweep in range(_SWEEPS):
        order = rows if sweep % 2 == 0 else rows[::-1]
        for row in order:
            wanted = [
                _mean([stops[n].x for n in (*above[index], *below[index])], stops[index].x)
                for index in row
            ]
            _pack(stops, row, wanted)


def _pack(stops: Sequence[_Stop], row: Sequence[int], wanted: Sequence[float]) -> None:
    """Remove overlaps, and keep the average of the wanted positions."""
    right = float("-inf")
    places = []
    for index, wish in zip(row, wanted, strict=True):
        half = stops[index].width / 2
        places.append(max(wish, right + _GAP + half))
        right = places[-1] + half
    shift = _mean([wish - place for wish, place in zip(wanted, places, strict=True)], 0.0)
    for index, place in zip(row, places, strict=True):
        stops[index].x = place + shift


def _placed(
    sizes: Sequence[Size],
    stops: Sequence[_Stop],
    rows: Sequence[Sequence[int]],
    chains: Mapping[tuple[int, int], Sequence[int]],
) -> Layout:
    heights = [
        max((sizes[index].height for index in row if index < len(sizes)), default=0.0)
        for row in rows
    ]
    tops = [_MARGIN]
    for height in heights:
        tops.append(tops[-1] + height + _LAYER_GAP)
    left = min((stop.x - stop.width / 2 for stop in stops), default=0.0) - _MARGIN
    right = max((stop.x + stop.width / 2 for stop in stops), default=0.0) + _MARGIN
    places = tuple(
        Point(stop.x - stop.width / 2 - left, tops[stop.layer]) for stop in stops[: len(sizes)]
    )

    def route(chain: Sequence[int]) -> tuple[Point, ...]:
        first, *bends, last = chain
        points = [Point(stops[first].x - left, places[first].y + sizes[first].height)]
        for bend in bends:
            x, layer = stops[bend].x - left, stops[bend].layer
            points += [Point(x, tops[layer]), Point(x, tops[layer] + heights[layer])]
        return (*points, Point(stops[last].x - left, places[last].y))

    routes = {ends: route(chain) for ends, chain in chains.items()}
    return Layout(places, routes, Size(right - left, tops[-1] - _LAYER_GAP + _MARGIN))


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
