from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import BundleError, InputError
from edgekit.base.tensors import TensorSpec, Varying
from edgekit.base.varying import (
    at_sizes,
    buckets_of,
    padded,
    sizes_of,
    sizes_to_try,
    trimmed,
    with_lengths,
    without_lengths,
)

N, M = Varying(1, 1, "n"), Varying(0, 2, "m")
IDS = TensorSpec("ids", "int64", (1, 8), varying=(N,))
MASK = TensorSpec("mask", "float32", (5, 8), varying=(M, N))
FIXED = TensorSpec("fixed", "float16", (3,))
BOXES = TensorSpec("boxes", "float32", (6, 4), varying=(Varying(0, 0, "count"),))
STATES = TensorSpec("states", "float32", (1, 8), varying=(N,))
INPUTS, OUTPUTS = (IDS, MASK, FIXED), (STATES, BOXES, FIXED)


def test_lengths_follow_the_other_tensors_each_once() -> None:
    inputs, outputs = with_lengths(INPUTS, OUTPUTS)

    assert [spec.name for spec in inputs] == ["ids", "mask", "fixed", "n", "m"]
    assert [spec.name for spec in outputs] == ["states", "boxes", "fixed", "count"]
    assert {spec.dtype for spec in inputs[3:]} == {"int64"}
    assert {spec.shape for spec in inputs[3:]} == {()}
    assert without_lengths(inputs, outputs) == (INPUTS, OUTPUTS)


def test_lengths_in_another_order_are_no_program_of_ours() -> None:
    inputs, outputs = with_lengths(INPUTS, OUTPUTS)

    with pytest.raises(ValueError, match="lengths"):
        without_lengths(inputs[::-1], outputs)


@given(st.integers(1, 8), st.integers(2, 5))
def test_what_is_padded_is_trimmed_to_what_it_was(n: int, m: int) -> None:
    arrays = {
        "ids": np.arange(n).reshape(1, n),
        "mask": np.ones((m, n), np.float32),
        "fixed": np.zeros(3, np.float16),
    }

    whole = padded(INPUTS, arrays)

    assert [array.shape for array in whole] == [(1, 8), (5, 8), (3,), (), ()]
    assert [array.dtype for array in whole[3:]] == [np.int64, np.int64]
    sizes = sizes_of(INPUTS, arrays)
    assert sizes == {"n": n, "m": m} == {"n": int(whole[3]), "m": int(whole[4])}
    for name, array in trimmed(INPUTS, whole[:3], sizes).items():
        assert array.dtype == arrays[name].dtype
        assert np.array_equal(array, arrays[name])


@given(st.integers(0, 6), st.integers(1, 8))
def test_outputs_are_trimmed_by_the_lengths_of_inputs_and_their_own(count: int, n: int) -> None:
    boxes = np.full((6, 4), np.nan, np.float32)
    boxes[:count] = 1
    program = [np.zeros((1, 8), np.float32), boxes, np.zeros(3, np.float16), np.array(count)]

    outputs = trimmed(OUTPUTS, program, {"n": n, "m": 2})

    assert {name: array.shape for name, array in outputs.items()} == {
        "states": (1, n),
        "boxes": (count, 4),
        "fixed": (3,),
    }
    assert np.isfinite(outputs["boxes"]).all()


@pytest.mark.parametrize("count", [-1, 7, 1 << 40])
def test_a_length_outside_of_its_range_is_an_error(count: int) -> None:
    program = [np.zeros((6, 4), np.float32), np.array(count)]

    with pytest.raises(BundleError, match=r"0\.\.6, 4"):
        trimmed([BOXES], program, {})


def test_inputs_that_disagree_about_a_size_are_refused() -> None:
    arrays = {"ids": np.zeros((1, 4), np.int64), "mask": np.zeros((2, 5), np.float32)}

    with pytest.raises(InputError, match=r"'mask' has the size 5, .* 'ids' has 4"):
        sizes_of([IDS, MASK], arrays)


def test_the_sizes_to_verify_are_the_largest_the_smallest_and_three_between() -> None:
    tried = sizes_to_try([IDS, MASK])

    assert tried[:2] == [{"n": 8, "m": 5}, {"n": 1, "m": 2}]
    assert len(tried) == 5
    assert all(at_sizes(MASK, one).shape == (one["m"], one["n"]) for one in tried)
    assert len({one["n"] for one in tried}) == 5


def test_kernels_of_their_own_are_for_halves_of_a_range() -> None:
    def sizes(low: int, high: int) -> list[int]:
        spec = TensorSpec("x", "float32", (high,), varying=(Varying(0, low, "n"),))
        return [one["n"] for one in buckets_of([spec])]

    assert sizes(1, 512) == [256, 128, 64, 32, 16, 8]
    assert sizes(16, 512) == [256, 128, 64, 32]
    assert sizes(1, 9_999) == [5_000, 2_500, 1_250, 625, 313, 157]
    assert sizes(1, 14) == []
    assert sizes(20, 20) == []


def test_lengths_shrink_together() -> None:
    varying = (Varying(0, 1, "n"), Varying(1, 30, "m"))
    spec = TensorSpec("x", "float32", (32, 40), varying=varying)

    assert buckets_of([spec]) == [{"n": 16, "m": 30}, {"n": 8, "m": 30}]
    assert buckets_of([FIXED]) == []


def test_a_size_of_each_bucket_is_verified() -> None:
    spec = TensorSpec("x", "float32", (128,), varying=(Varying(0, 1, "n"),))

    assert [one["n"] for one in sizes_to_try([spec])] == [128, 1, 96, 48, 24, 12, 6]


def test_a_small_range_is_tried_once_at_each_size() -> None:
    spec = TensorSpec("x", "float32", (3,), varying=(Varying(0, 2, "n"),))

    assert sizes_to_try([spec]) == [{"n": 3}, {"n": 2}]
    assert sizes_to_try([FIXED]) == []
