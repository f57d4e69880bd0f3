"""Operators of edgekit's own in numpy, for ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class Places(OpRun):  # type: ignore[misc]  # onnx.reference has no types
    op_domain = "edgekit"

    def _run(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = np.flatnonzero(mask)
        places = np.zeros(mask.size, np.int64)
        places[: found.size] = found
        return places, np.array(found.size)


class BoxesKept(OpRun):  # type: ignore[misc]
    op_domain = "edgekit"

    def _run(
        self,
        boxes: np.ndarray,
        scores: np.ndarray,
        most_boxes: np.ndarray | None,
        overlap: np.ndarray | None,
        least: np.ndarray | None,
        number: np.ndarray,
        most: int = 0,
        center_point_box: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        allowed = most if most_boxes is None else min(most, int(most_boxes.reshape(())))
        limit = 0.0 if overlap is None else overlap.reshape(())
        kept = []
        for batch, kind in np.ndindex(scores.shape[:2]):
            row = scores[batch, kind, : int(number)]
            chosen: list[int] = []
            for box in np.argsort(-row, kind="stable"):
                if len(chosen) == allowed or (least is not None and row[box] <= least.reshape(())):
                    break
                pairs = ((boxes[batch, box], boxes[batch, other]) for other in chosen)
                if not any(_overlap(*pair, bool(center_point_box)) > limit for pair in pairs):
                    chosen.append(int(box))
            kept += [(batch, kind, box) for box in chosen]
        result = np.zeros((scores.shape[0] * scores.shape[1] * most, 3), np.int64)
        result[: len(kept)] = np.reshape(kept, (-1, 3))
        return result, np.array(len(kept))


def _overlap(first: np.ndarray, second: np.ndarray, centered: bool) -> float:
    low, high = zip(*(_corners(box, centered) for box in (first, second)), strict=True)
    sides = np.minimum(*high) - np.maximum(*low)
    shared = sides.prod() if (sides > 0).all() else np.float32(0)
    whole = sum((top - bottom).prod() for bottom, top in zip(low, high, strict=True)) - shared
    return float(shared / whole) if whole > 0 else 0.0


def _corners(box: np.ndarray, centered: bool) -> tuple[np.ndarray, np.ndarray]:
    if centered:
        return box[:2] - box[2:] / 2, box[:2] + box[2:] / 2
    return np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])


def evaluator(proto: onnx.ModelProto) -> Any:
    """Return what runs a graph with these operators."""
    return ReferenceEvaluator(proto, new_ops=[Places, BoxesKept])
