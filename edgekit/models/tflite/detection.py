"""TFLite_Detection_PostProcess: the end of SSD detectors, the custom operator of LiteRT.

LiteRT takes the box with the best score, drops those that overlap it, and goes on with the rest.
Each round is an iteration of a loop with a known count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from flatbuffers import flexbuffers
from tvm import relax

from edgekit.models.control import repeated
from edgekit.models.onnx.values import Value
from edgekit.models.tflite.conversion import Conversion

op = relax.op
_GONE = float(np.finfo("float32").min)
"""The score of a box that was taken or dropped."""
_MOST = 10_000
"""The most boxes of a class, and of an image."""


@dataclass(frozen=True)
class _Options:
    detections: int
    """The boxes of an image."""
    of_class: int
    """The boxes of a class, where each class drops boxes of its own."""
    categories: int
    """The classes of a box, where all classes drop boxes together."""
    classes: int
    """The classes without the background."""
    score: float
    overlap: float
    scales: tuple[float, ...]
    """What encoded boxes are divided by: y, x, height, width."""
    regular: bool
    """Whether each class drops boxes of its own."""


def _options(flat: tflite.Operator) -> _Options:
    """Read the options, which are a map in a format of their own."""
    stored = b"" if flat.CustomOptionsIsNone() else flat.CustomOptionsAsNumpy().tobytes()
    try:
        found: Mapping[str, Any] = flexbuffers.Loads(stored)
        read = _Options(
            int(found["max_detections"]),
            int(found.get("detections_per_class", 100)),
            int(found["max_classes_per_detection"]),
            int(found["num_classes"]),
            float(found["nms_score_threshold"]),
            float(found["nms_iou_threshold"]),
            tuple(float(found[f"{side}_scale"]) for side in "yxhw"),
            bool(found.get("use_regular_nms", False)),
        )
    except Exception as error:  # the reader trusts its bytes
        raise ValueError("its options are damaged") from error
    counts = (read.detections, read.of_class, read.categories, read.classes)
    if not all(1 <= count <= _MOST for count in counts):
        raise ValueError(f"its options count to {max(counts)}, beyond 1 to {_MOST}")
    if not all(map(math.isfinite, (*read.scales, read.score, read.overlap))) or 0 in read.scales:
        raise ValueError("its options are no numbers to compute with")
    return read


class _Detection:
    """One use of the operator."""

    def __init__(self, converter: Conversion, flat: tflite.Operator) -> None:
        self.converter, self.options = converter, _options(flat)
        encoded, scores, anchors = (
            self._floats(tensor) for tensor in converter.get_input_tensors(flat)
        )
        shapes = [tuple(int(extent) for extent in one.ty.shape) for one in (encoded, scores)]
        if shapes[0][0] != 1:
            raise ValueError(f"it has a batch of {shapes[0][0]}, and LiteRT computes one image")
        self.count, self.columns = shapes[0][1], shapes[1][2]
        offset = self.columns - self.options.classes
        if offset not in (0, 1):
            raise ValueError(
                f"it has {self.columns} columns of scores for {self.options.classes} classes"
            )
        self.boxes = self._decoded(op.reshape(encoded, shapes[0][1:]), anchors)
        rows = self.emit(op.reshape(scores, (self.count, self.columns)))
        self.scores = self._columns(rows, offset, self.columns)

    def emit(self, value: Any) -> Any:
        return self.converter.bb.emit(self.converter.bb.normalize(value))

    def _floats(self, tensor: Any) -> Any:
        value = self.converter.get_tensor_expr(tensor)
        return self.emit(self.converter.dequantize(value, tensor) if tensor.qnn_params else value)

    def _columns(self, rows: Any, start: int, stop: int) -> Any:
        return self.emit(op.strided_slice(rows, axes=[1], begin=[start], end=[stop]))

    def _decoded(self, encoded: Any, anchors: Any) -> Any:
        """Return corners, y first, of boxes that are described by what they differ from anchors."""
        rows = self.emit(encoded)
        own = [self._columns(rows, place, place + 1) for place in range(4)]
        fixed = [self._columns(anchors, place, place + 1) for place in range(4)]
        low, high = [], []
        for axis in (0, 1):
            far = op.divide(own[axis], _number(self.options.scales[axis]))
            centre = self.emit(op.add(op.multiply(far, fixed[axis + 2]), fixed[axis]))
            large = op.exp(op.divide(own[axis + 2], _number(self.options.scales[axis + 2])))
            half = self.emit(op.multiply(op.multiply(_number(0.5), large), fixed[axis + 2]))
            low.append(self.emit(op.subtract(centre, half)))
            high.append(self.emit(op.add(centre, half)))
        return self.emit(op.concat([*low, *high], axis=1))

    def picked(self, scores: Any, rounds: int) -> tuple[Any, Any]:
        """Return the scores and places of the boxes that stay, for each row of scores a column.

        Behind the last box, scores are _GONE.
        """
        first = self.emit(op.where(self._sure(scores), scores, _number(_GONE)))
        rows = int(scores.ty.shape[0])
        boxes = [self.emit(op.squeeze(self._columns(self.boxes, k, k + 1), [1])) for k in range(4)]
        area = self._area(boxes)
        numbers = relax.const(np.arange(self.count, dtype="int64")[None], "int64")

        def iteration(
            slices: list[Value], states: list[Value]
        ) -> tuple[Sequence[Value], Sequence[Value]]:
            del slices
            (left,) = states
            best = self.emit(op.max(left, [1]))
            place = self.emit(op.argmax(left, 1))
            mine = [
                self.emit(op.reshape(self.emit(op.take(side, place, 0)), (rows, 1)))
                for side in boxes
            ]
            overlap = self._overlap(mine, self._area(mine), boxes, area)
            gone = op.logical_or(
                self.emit(op.greater(overlap, _number(self.options.overlap))),
                self.emit(op.equal(numbers, self.emit(op.reshape(place, (rows, 1))))),
            )
            after = self.emit(op.where(self.emit(gone), _number(_GONE), left))
            return [after], [best, place]

        _, best, places = repeated(
            self.converter.bb, rounds, (), [first], iteration, [False, False]
        )
        return best, places

    def _sure(self, scores: Any) -> Any:
        return self.emit(op.greater_equal(scores, _number(self.options.score)))

    def _area(self, box: Sequence[Any]) -> Any:
        height, width = (op.subtract(box[axis + 2], box[axis]) for axis in (0, 1))
        return self.emit(op.multiply(height, width))

    def _overlap(self, mine: Sequence[Any], own: Any, boxes: Sequence[Any], area: Any) -> Any:
        """Return the share of intersections in unions; none with boxes without an area."""
        sides = []
        for axis in (0, 1):
            low = self.emit(op.maximum(mine[axis], boxes[axis]))
            high = self.emit(op.minimum(mine[axis + 2], boxes[axis + 2]))
            sides.append(self.emit(op.maximum(op.subtract(high, low), _number(0))))
        common = self.emit(op.multiply(*sides))
        union = self.emit(op.subtract(op.add(own, area), common))
        positive = [self.emit(op.greater(one, _number(0))) for one in (own, area)]
        both = self.emit(op.logical_and(*positive))
        share = self.emit(op.divide(common, self.emit(op.where(both, union, _number(1)))))
        return self.emit(op.where(both, share, _number(0)))

    def together(self) -> Any:
        """Drop boxes of all classes together: the best class of each box decides."""
        limits = self.options
        categories = min(limits.categories, limits.classes)
        strongest = self.emit(op.reshape(op.max(self.scores, [1]), (1, self.count)))
        rounds = min(limits.detections, self.count)
        best, places = self.picked(strongest, rounds)
        places = self.emit(op.reshape(places, (rounds,)))
        stays = self._sure(op.reshape(best, (rounds, 1)))
        rows = self.emit(op.take(self.scores, places, 0))
        found = self.emit(op.topk(rows, categories, -1, "both", True, "int32"))
        values, classes = (self.emit(relax.TupleGetItem(found, place)) for place in (0, 1))
        wide = self.emit(op.repeat(places, categories, 0))
        size = limits.detections * categories
        kept = self.emit(
            op.reshape(op.broadcast_to(stays, (rounds, categories)), (rounds * categories,))
        )
        number = op.sum(op.astype(stays, "float32"), [0])
        return self._results(kept, wide, (classes, values), size, number)

    def apart(self) -> Any:
        """Drop boxes of each class, then take the best of all classes."""
        limits = self.options
        rounds = min(limits.of_class, self.count)
        best, places = self.picked(self.emit(op.permute_dims(self.scores, [1, 0])), rounds)
        ordered = [
            self.emit(op.reshape(op.permute_dims(one, [1, 0]), (limits.classes * rounds,)))
            for one in (best, places)
        ]
        size = min(limits.detections, limits.classes * rounds)
        found = self.emit(op.topk(ordered[0], size, -1, "both", True, "int32"))
        values, chosen = (self.emit(relax.TupleGetItem(found, place)) for place in (0, 1))
        wide = self.emit(op.take(ordered[1], chosen, 0))
        classes = op.floor_divide(chosen, relax.const(rounds, "int32"))
        kept = self._sure(values)
        number = op.sum(op.astype(kept, "float32"), [0], keepdims=True)
        return self._results(kept, wide, (classes, values), limits.detections, number)

    def _results(
        self, kept: Any, places: Any, found: tuple[Any, Any], size: int, number: Any
    ) -> Any:
        """Return boxes, classes, scores and their number; zeros stand behind the last box."""
        zero = _number(0)
        (length,) = (int(extent) for extent in kept.ty.shape)
        column = self.emit(op.reshape(kept, (length, 1)))
        boxes = self.emit(op.where(column, self.emit(op.take(self.boxes, places, 0)), zero))
        classes, scores = (
            self.emit(op.reshape(op.astype(one, "float32"), (length,))) for one in found
        )
        vectors = [self.emit(op.where(kept, one, zero)) for one in (classes, scores)]
        missing = size - length
        padded = [self._padded(one, missing) for one in (boxes, *vectors)]
        shaped = [
            op.reshape(padded[0], (1, size, 4)),
            *(op.reshape(v, (1, size)) for v in padded[1:]),
        ]
        return relax.Tuple([*map(self.emit, shaped), self.emit(op.reshape(number, (1,)))])

    def _padded(self, value: Any, missing: int) -> Any:
        if not missing:
            return value
        rest = [int(extent) for extent in value.ty.shape][1:]
        zeros = relax.const(np.zeros((missing, *rest), "float32"), "float32")
        return self.emit(op.concat([value, zeros], axis=0))


def _number(value: float) -> Any:
    return relax.const(np.array(value, "float32"), "float32")


def convert(converter: Conversion, flat: tflite.Operator) -> Any:
    """Return the four results as a tuple."""
    detection = _Detection(converter, flat)
    converter.repaired("the boxes of TFLite_Detection_PostProcess are dropped in rounds")
    return detection.apart() if detection.options.regular else detection.together()
