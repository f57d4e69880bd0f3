"""Writes the operators that turn the outputs of a detector into a fixed number of boxes.

A detector describes some thousand candidates. Those with the best scores are compared with each
other, and a box that overlaps a better one of its class is dropped. NonMaxSuppression does the same
with an output whose size depends on the data, which no program on a board has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from edgekit.base.arrays import Array
from edgekit.base.errors import ProjectError
from edgekit.base.tensors import TensorSpec
from edgekit.models.ends.geometry import Size
from edgekit.models.ends.postprocess import Boxes, Decode
from edgekit.models.onnx.ends.nodes import BOOL, FLOAT, INT32, UINT8, Nodes

ROUNDS = 24
"""The longest chain of boxes, each dropped or kept because of the one before, that is followed."""
POINTS = 5
"""The landmarks of a face."""


@dataclass(frozen=True)
class Made:
    """A new output: its value in the graph, and its shape."""

    value: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Candidates:
    """Candidate boxes before any is dropped, as values of the graph."""

    corners: str
    """x1, y1, x2, y2 in pixels of the model's input, a row for each candidate."""
    scores: str
    """The score of the best class of each candidate."""
    classes: str
    """The best class of each candidate, as float."""
    count: int
    points: str | None = None
    """Pairs of x and y in pixels, a row for each candidate."""
    pairs: int = POINTS
    """The number of pairs."""
    coefficients: str | None = None
    """The share of each prototype in a candidate's mask."""
    is_final: bool = False
    """Whether the model dropped overlapping boxes itself."""


@dataclass(frozen=True)
class Outputs:
    """The outputs of a model that describe boxes."""

    nodes: Nodes
    values: Sequence[str]
    """The outputs as float32."""
    specs: Sequence[TensorSpec]
    section: Boxes
    picture: Size
    """Height and width of the model's input."""

    def rows(self, place: int, width: int | None = None) -> tuple[str, int, int]:
        """Return an output as a matrix, with its extents."""
        spec = self.specs[place]
        shape = spec.shape[1:] if len(spec.shape) == 3 and spec.shape[0] == 1 else spec.shape
        if len(shape) != 2 or (width is not None and shape[1] != width):
            columns = "any number of columns" if width is None else f"{width} columns"
            raise ProjectError(
                f"the output {spec.name} has shape {list(spec.shape)}, and decode = "
                f'"{self.section.decode}" takes a matrix with {columns}',
                hint="choose another decode in [postprocess], or name the outputs in its order",
            )
        return self.nodes.reshaped(self.values[place], *shape), shape[0], shape[1]


def write_boxes(outputs: Outputs, mapping: Sequence[float]) -> Mapping[str, Made]:
    """Write the nodes, and return the new outputs by name.

    `mapping` is factor x, offset x, factor y, offset y, width and height of the program's picture.
    """
    nodes, section = outputs.nodes, outputs.section
    found = DECODERS[section.decode](outputs)
    count = min(section.candidates, found.count)
    scores, places = nodes.top(found.scores, count)
    corners = nodes.add("Gather", found.corners, places, axis=0)
    classes = nodes.add("Gather", found.classes, places, axis=0)
    valid = nodes.cast(nodes.add("Greater", scores, nodes.constant(section.score)), FLOAT)
    kept = valid if found.is_final else _kept(nodes, corners, classes, valid, section.iou, count)
    most = min(section.most, count)
    scores, order = nodes.top(nodes.add("Mul", scores, kept), most)
    stays = nodes.add("Gather", kept, order, axis=0)
    row = nodes.reshaped(stays, -1, 1)

    def chosen(values: str, width: int) -> Made:
        """Return the rows that stay, in pixels of the program's picture; 0 for the others."""
        x, dx, y, dy, wide, high = mapping
        rows = nodes.add("Gather", values, order, axis=0)
        rows = nodes.add("Mul", rows, nodes.constant(np.tile([x, y], width // 2)))
        rows = nodes.add("Add", rows, nodes.constant(np.tile([dx, dy], width // 2)))
        limits = [float(side) for side in np.tile([wide, high], width // 2)]
        return Made(nodes.add("Mul", nodes.clipped(rows, 0.0, limits), row), (most, width))

    made = {"boxes": chosen(corners, 4), "scores": Made(scores, (most,))}
    names = nodes.add("Mul", nodes.add("Gather", classes, order, axis=0), stays)
    made["classes"] = Made(nodes.cast(names, INT32), (most,))
    if found.points is not None:
        points = nodes.add("Gather", found.points, places, axis=0)
        made["landmarks"] = chosen(points, 2 * found.pairs)
    if found.coefficients is not None:
        parts = nodes.add("Gather", found.coefficients, places, axis=0)
        parts, places = (nodes.add("Gather", value, order, axis=0) for value in (parts, corners))
        made["masks"] = _masks(outputs, parts, places, stays, most)
    return made


def _masks(outputs: Outputs, parts: str, corners: str, stays: str, most: int) -> Made:
    """Return a mask for each box, in the size of the prototypes, and empty outside the box."""
    nodes, (_, count, height, width) = outputs.nodes, outputs.specs[1].shape
    prototypes = nodes.reshaped(outputs.values[1], count, height * width)
    values = nodes.reshaped(nodes.add("MatMul", parts, prototypes), most, height, width)
    # The sigmoid of the authors is above a half where its argument is above 0.
    inside = nodes.add("Greater", values, nodes.constant(0.0))
    inside = nodes.add("And", inside, nodes.cast(nodes.reshaped(stays, most, 1, 1), BOOL))
    sides = ((0, width, outputs.picture[1]), (1, height, outputs.picture[0]))
    for place, extent, pixels in sides:
        shape = (1, 1, extent) if place == 0 else (1, extent, 1)
        grid = nodes.constant(np.arange(extent).reshape(shape))
        low, high = (
            nodes.add(
                "Mul",
                nodes.reshaped(nodes.sliced(corners, 1, i, i + 1), most, 1, 1),
                nodes.constant(extent / pixels),
            )
            for i in (place, place + 2)
        )
        inside = nodes.add("And", inside, nodes.add("GreaterOrEqual", grid, low))
        inside = nodes.add("And", inside, nodes.add("Less", grid, high))
    return Made(nodes.cast(inside, UINT8), (most, height, width))


def _kept(nodes: Nodes, corners: str, classes: str, valid: str, iou: float, count: int) -> str:
    """Return 1 for each candidate that no kept candidate with a better score overlaps.

    A candidate stays if none of those that stay suppresses it. Each round settles the candidates
    whose fate depends on those that the round before settled.
    """
    x1, y1, x2, y2 = (nodes.sliced(corners, 1, i, i + 1) for i in range(4))
    columns = [nodes.reshaped(value, 1, count) for value in (x1, y1, x2, y2)]
    width = nodes.add("Sub", nodes.add("Min", x2, columns[2]), nodes.add("Max", x1, columns[0]))
    height = nodes.add("Sub", nodes.add("Min", y2, columns[3]), nodes.add("Max", y1, columns[1]))
    shared = nodes.add("Mul", nodes.add("Relu", width), nodes.add("Relu", height))
    area = nodes.add("Mul", nodes.add("Sub", x2, x1), nodes.add("Sub", y2, y1))
    union = nodes.add("Sub", nodes.add("Add", area, nodes.reshaped(area, 1, count)), shared)
    overlaps = nodes.add("Greater", shared, nodes.add("Mul", union, nodes.constant(iou)))
    number = nodes.cast(classes, INT32)
    same = nodes.add("Equal", nodes.reshaped(number, count, 1), nodes.reshaped(number, 1, count))
    both = nodes.cast(nodes.add("And", overlaps, same), FLOAT)
    later = nodes.constant(np.triu(np.ones((count, count)), 1))
    suppresses = nodes.add("Mul", nodes.add("Mul", both, later), nodes.reshaped(valid, count, 1))
    kept = nodes.reshaped(valid, 1, count)
    line, half = kept, nodes.constant(0.5)
    for _ in range(min(ROUNDS, count - 1)):
        hits = nodes.add("MatMul", kept, suppresses)
        free = nodes.cast(nodes.add("Less", hits, half), FLOAT)
        kept = nodes.add("Mul", free, line)
    return nodes.reshaped(kept, count)


def _from_centres(nodes: Nodes, centres: str, sizes: str) -> str:
    half = nodes.add("Mul", sizes, nodes.constant(0.5))
    low, high = nodes.add("Sub", centres, half), nodes.add("Add", centres, half)
    return nodes.add("Concat", low, high, axis=1)


def _best(nodes: Nodes, scores: str) -> tuple[str, str]:
    """Return the best score of each row, and its class as float."""
    classes = nodes.add("ArgMax", scores, axis=1, keepdims=0)
    return nodes.largest(scores, 1), nodes.cast(classes, FLOAT)


def _from_rows(outputs: Outputs, rows: str, count: int, first: int, columns: int) -> Candidates:
    nodes = outputs.nodes
    centres, sizes = nodes.sliced(rows, 1, 0, 2), nodes.sliced(rows, 1, 2, 4)
    scores = nodes.sliced(rows, 1, first, columns)
    if first == 5:
        scores = nodes.add("Mul", scores, nodes.sliced(rows, 1, 4, 5))
    return Candidates(_from_centres(nodes, centres, sizes), *_best(nodes, scores), count)


def _yolov8(outputs: Outputs) -> Candidates:
    nodes, keypoints = outputs.nodes, outputs.section.keypoints
    matrix, columns, count = outputs.rows(0)
    parts = int(outputs.specs[1].shape[1]) if len(outputs.specs) > 1 else 0
    rows = nodes.add("Transpose", matrix, perm=[1, 0])
    last = 4 + _classes(outputs, columns - 4 - parts - 3 * keypoints)
    found = _from_rows(outputs, rows, count, 4, last)
    if keypoints:
        places = [last + 3 * point + axis for point in range(keypoints) for axis in (0, 1)]
        points = nodes.add("Gather", rows, nodes.whole(*places), axis=1)
        found = replace(found, points=points, pairs=keypoints)
    if parts:
        found = replace(found, coefficients=nodes.sliced(rows, 1, columns - parts, columns))
    return found


def _yolov5(outputs: Outputs) -> Candidates:
    nodes = outputs.nodes
    rows, count, columns = outputs.rows(0)
    parts = int(outputs.specs[1].shape[1]) if len(outputs.specs) > 1 else 0
    last = 5 + _classes(outputs, columns - 5 - parts)
    found = _from_rows(outputs, rows, count, 5, last)
    if parts:
        found = replace(found, coefficients=nodes.sliced(rows, 1, columns - parts, columns))
    return found


def _classes(outputs: Outputs, found: int) -> int:
    """Return the number of classes: that of the labels, where more columns follow (masks)."""
    labels = len(outputs.section.labels)
    if found < 1 or labels > found:
        spec = outputs.specs[0]
        raise ProjectError(
            f"the output {spec.name} of shape {list(spec.shape)} has scores for {max(found, 0)} "
            f"classes, and [postprocess] has {labels} labels",
            hint="correct decode or labels in [postprocess]",
        )
    return labels or found


def _end2end(outputs: Outputs) -> Candidates:
    nodes = outputs.nodes
    rows, count, _ = outputs.rows(0, 6)
    scores = nodes.reshaped(nodes.sliced(rows, 1, 4, 5), count)
    classes = nodes.reshaped(nodes.sliced(rows, 1, 5, 6), count)
    return Candidates(nodes.sliced(rows, 1, 0, 4), scores, classes, count, is_final=True)


def _ssd(outputs: Outputs) -> Candidates:
    """Take what TFLite_Detection_PostProcess returns: corners as shares of the picture, y first."""
    nodes = outputs.nodes
    corners, count, _ = outputs.rows(0, 4)
    height, width = outputs.picture
    ordered = nodes.add("Gather", corners, nodes.whole(1, 0, 3, 2), axis=1)
    pixels = nodes.add("Mul", ordered, nodes.constant(np.array([width, height] * 2)))
    classes, scores = (nodes.reshaped(outputs.values[place], count) for place in (1, 2))
    if len(outputs.values) > 3:
        number = nodes.reshaped(outputs.values[3], 1)
        valid = nodes.add("Less", nodes.constant(np.arange(count)), number)
        scores = nodes.add("Where", valid, scores, nodes.constant(np.zeros(count)))
    return Candidates(pixels, scores, classes, count, is_final=True)


def _probabilities(outputs: Outputs, place: int) -> tuple[str, str]:
    nodes, section = outputs.nodes, outputs.section
    scores, _, columns = outputs.rows(place)
    if section.softmax:
        scores = nodes.add("Softmax", scores, axis=1)
    if section.background and columns > 1:
        scores = nodes.sliced(scores, 1, 1, columns)
    return _best(nodes, scores)


def _corners(outputs: Outputs) -> Candidates:
    nodes = outputs.nodes
    corners, count, _ = outputs.rows(0, 4)
    if outputs.section.relative:
        height, width = outputs.picture
        corners = nodes.add("Mul", corners, nodes.constant(np.array([width, height] * 2)))
    return Candidates(corners, *_probabilities(outputs, 1), count)


def _retinaface(outputs: Outputs) -> Candidates:
    nodes, section = outputs.nodes, outputs.section
    offsets, count, _ = outputs.rows(0, 4)
    anchors = priors(section, outputs.picture)
    if len(anchors) != count:
        raise ProjectError(
            f"the output {outputs.specs[0].name} describes {count} boxes, and the steps and sizes "
            f"of [postprocess] give {len(anchors)}",
            hint="give the steps and sizes that the model was trained with",
        )
    near, far = section.variances
    height, width = outputs.picture
    pixels = np.array([width, height])

    def moved(values: str) -> str:
        shift = nodes.add("Mul", values, nodes.constant(anchors[:, 2:] * near * pixels))
        return nodes.add("Add", nodes.constant(anchors[:, :2] * pixels), shift)

    grown = nodes.add("Mul", nodes.sliced(offsets, 1, 2, 4), nodes.constant(far))
    sizes = nodes.add("Mul", nodes.add("Exp", grown), nodes.constant(anchors[:, 2:] * pixels))
    corners = _from_centres(nodes, moved(nodes.sliced(offsets, 1, 0, 2)), sizes)
    points = None
    if len(outputs.values) > 2:
        marks, _, _ = outputs.rows(2, 2 * POINTS)
        pairs = [moved(nodes.sliced(marks, 1, 2 * i, 2 * i + 2)) for i in range(POINTS)]
        points = nodes.add("Concat", *pairs, axis=1)
    return Candidates(corners, *_probabilities(outputs, 1), count, points)


def priors(section: Boxes, picture: Size) -> Array:
    """Return the prior boxes of RetinaFace: centre x and y, width and height, as shares."""
    height, width = picture
    found = []
    for step, sizes in zip(section.steps, section.sizes, strict=True):
        rows, columns = -(-height // step), -(-width // step)
        for row, column, size in product(range(rows), range(columns), sizes):
            centre = ((column + 0.5) * step / width, (row + 0.5) * step / height)
            found.append((*centre, size / width, size / height))
    return np.array(found).reshape(-1, 4)


DECODERS: Mapping[Decode, Callable[[Outputs], Candidates]] = {
    "yolov8": _yolov8,
    "yolov5": _yolov5,
    "end2end": _end2end,
    "retinaface": _retinaface,
    "corners": _corners,
    "ssd": _ssd,
}
