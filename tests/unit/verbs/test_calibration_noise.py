"""Noise is told from data by whether neighbours have something in common."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.verbs.quantization.calibration import looks_like_noise


def smooth(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """What light on a surface does: neighbours are nearly alike."""
    rows = np.cumsum(random.standard_normal(shape), axis=-1)
    return np.cumsum(rows, axis=-2)


@pytest.mark.parametrize("draw", ["standard_normal", "random"])
@pytest.mark.parametrize("shape", [(1, 3, 16, 16), (1, 64, 64, 3), (1, 1, 28, 28)])
def test_noise_is_noise_from_one_sample_or_many(draw: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(7)
    assert looks_like_noise([getattr(random, draw)(shape) for _ in range(16)])
    if np.prod(shape) > 5000:
        assert looks_like_noise([getattr(random, draw)(shape)])


@pytest.mark.parametrize("shape", [(1, 3, 16, 16), (1, 1, 28, 28)])
def test_smooth_pictures_are_data_even_with_noise_on_them(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(7)
    pictures = [smooth(random, shape) for _ in range(8)]
    noisy = [p / p.std() + 0.5 * random.standard_normal(shape) for p in pictures]
    assert not looks_like_noise(pictures)
    assert not looks_like_noise(noisy)


def test_one_axis_with_a_pattern_is_enough_to_be_data() -> None:
    random = np.random.default_rng(7)
    stripes = np.repeat(random.standard_normal((1, 1, 1, 32)), 32, axis=2)
    assert not looks_like_noise([stripes])


def test_nothing_is_said_of_vectors_and_constants() -> None:
    random = np.random.default_rng(7)
    assert not looks_like_noise([random.standard_normal((1, 640))])
    assert not looks_like_noise([random.standard_normal((1, 4, 4))])
    assert not looks_like_noise([np.zeros((1, 3, 16, 16))])
    assert not looks_like_noise([])
