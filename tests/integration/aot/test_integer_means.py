"""Means of stored values in a library for Linux are LiteRT's, over any axes and of both types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.tflite_models import Op, T, constant, run_both, tflite_bytes, write_model


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("seed", range(6))
def test_means_over_any_axes(dtype: str, seed: int, tmp_path: Path) -> None:
    dice, limits = np.random.default_rng(seed), np.iinfo(dtype)
    rank = int(dice.integers(1, 5))
    shape = tuple(int(extent) for extent in dice.integers(1, 9, rank))
    axes = np.sort(dice.permutation(rank)[: dice.integers(1, rank + 1)]).astype("int32")
    (scale, other_scale), (zero, other_zero) = (
        [float(np.float32(value)) for value in dice.uniform(0.003, 0.2, 2)],
        [int(value) for value in dice.integers(limits.min, limits.max + 1, 2)],
    )
    tensors = [
        T("x", shape, dtype, scale=scale, zero=zero),
        constant("a", axes),
        T("r", (), dtype, scale=other_scale, zero=other_zero),
    ]
    options = {"table": "ReducerOptions", "keepDims": bool(dice.integers(2))}
    content = tflite_bytes(tensors, [Op("MEAN", ("x", "a"), ("r",), options)], ["x"], ["r"])
    stored = dice.integers(limits.min, limits.max + 1, shape).astype(dtype)
    found, expected = run_both(write_model(tmp_path, content), {"x": stored})
    np.testing.assert_array_equal(found["r"], expected["r"], strict=True)
