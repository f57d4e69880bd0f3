"""A model that predicts a schedule's time from measured schedules.

A ridge regression over what MetaSchedule counts of each statement: loops, bytes touched, reuse.
It only has to rank hopeless schedules last: the others are measured anyway.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.cost_model import PyCostModel
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature

from edgekit.base.arrays import Array

_FEWEST = 12
"""The number of measured schedules below which predictions are random."""
_MOST = 2048
_RIDGE = 1.0


@derived_object
class RidgeModel(PyCostModel):  # type: ignore[misc]
    """A ridge regression for one kernel."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = np.random.default_rng(seed)
        self._features = PerStoreFeature()
        self._seen: list[Array] = []
        self._scores: list[float] = []
        self._weights: Array | None = None
        self._middle: Array | None = None
        self._scale: Array | None = None

    def load(self, path: str) -> None:
        raise NotImplementedError

    def save(self, path: str) -> None:
        raise NotImplementedError

    def update(self, context: Any, candidates: Any, results: Any) -> None:
        """Refuse: our search calls `learn` instead."""
        raise NotImplementedError

    def learn(self, context: Any, candidates: list[Any], microseconds: list[float]) -> None:
        self._seen = (self._seen + self._rows(context, candidates))[-_MOST:]
        self._scores = (self._scores + [-float(np.log(us)) for us in microseconds])[-_MOST:]
        if len(self._seen) < _FEWEST:
            return
        rows, scores = np.stack(self._seen), np.asarray(self._scores)
        self._middle = rows.mean(axis=0)
        self._scale = np.maximum(rows.std(axis=0), 1e-6)
        normal = (rows - self._middle) / self._scale
        square = normal.T @ normal + _RIDGE * np.eye(normal.shape[1])
        self._weights = np.linalg.solve(square, normal.T @ (scores - scores.mean()))

    def predict(self, context: Any, candidates: list[Any]) -> Array:
        if self._weights is None or self._middle is None or self._scale is None:
            return self._random.random(len(candidates))
        rows = np.stack(self._rows(context, candidates))
        guessed = ((rows - self._middle) / self._scale) @ self._weights
        # The search draws by these scores as weights: they must be positive.
        likely: Array = np.exp(guessed - guessed.max())
        return likely

    def _rows(self, context: Any, candidates: list[Any]) -> list[Array]:
        """Return a row per schedule: the sum and the maximum over its statements."""
        found = []
        for feature in self._features.extract_from(context, candidates):
            array = feature.numpy()
            found.append(np.concatenate([array.sum(axis=0), array.max(axis=0)]))
        return found
