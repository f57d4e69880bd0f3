"""What the inputs at the edges hold, and that every machine makes the same of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.arrays import DTYPES, numpy_dtype
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.models.edge_inputs import largest_inputs, nan_inputs, nudged_inputs, zero_inputs
from edgekit.models.inputs import reference_inputs
from edgekit.models.preprocess import Preprocess

STORED = TensorSpec("q", "int8", (2, 40), Quantization((0.5,), (3,)))
IDS = TensorSpec("ids", "int64", (40,))
FLOATS = TensorSpec("x", "float32", (50,))


def largest(spec: TensorSpec, magnitude: float = 256.0, **more: Preprocess) -> np.ndarray:
    return largest_inputs([spec], 0, {"ids": (-7, 6)}, more, magnitude)[spec.name]


@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=4),
    st.integers(0, 2**63),
    st.booleans(),
)
def test_they_fit_any_specification(
    dtype: str, shape: list[int], seed: int, quantised: bool
) -> None:
    spec = TensorSpec("x", dtype, tuple(shape), Quantization((0.5,), (3,)) if quantised else None)
    usual = reference_inputs([spec], seed)

    made = [zero_inputs([spec], usual, {}), largest_inputs([spec], seed, {}, {}, 16.0)]
    made += [nan_inputs(usual), *nudged_inputs(usual)]

    for found in made:
        assert (found["x"].dtype, found["x"].shape) == (numpy_dtype(dtype), tuple(shape))


def test_zeros_are_stored_as_the_zero_point() -> None:
    usual = reference_inputs([STORED, FLOATS, IDS], 0, {"ids": (-7, 6)})

    found = zero_inputs([STORED, FLOATS, IDS], usual, {"ids": (-7, 6)})

    assert set(found["q"].reshape(-1)) == {3}
    assert not found["x"].any()
    assert not found["ids"].any()


@pytest.mark.parametrize(("usual", "expected"), [([1, 0, 5], 0), ([1, 2, 5], 1)])
def test_an_integer_is_zero_where_zero_was_proven_to_be_fine(
    usual: list[int], expected: int
) -> None:
    spec = TensorSpec("n", "int32", (3,))

    found = zero_inputs([spec], {"n": np.array(usual, np.int32)}, {})

    assert found["n"].tolist() == [expected] * 3


def test_the_largest_integers_are_both_ends_of_the_range() -> None:
    assert set(largest(STORED).reshape(-1)) == {-128, 127}
    assert set(largest(IDS)) == {-7, 6}
    assert set(largest(TensorSpec("mask", "int64", (40,)))) == {0, 1}
    assert largest(TensorSpec("b", "bool", (4,))).all()


def test_the_largest_floats_reach_both_ends_and_differ() -> None:
    found = largest(FLOATS)

    assert (found.max(), found.min()) == (256.0, -256.0)
    assert len(set(found)) == found.size
    assert found[2:5].tolist() == largest(FLOATS)[2:5].tolist()


def test_the_largest_pixels_are_what_the_preprocessing_makes_of_black_and_white() -> None:
    photo = TensorSpec("x", "float32", (1, 3, 4, 4))

    found = largest(photo, x=Preprocess("NCHW", scale=1 / 255, mean=(0.5,), std=(0.25,)))

    assert found.max() == pytest.approx(2.0)
    assert found.min() == pytest.approx(-2.0)


def test_nan_is_for_floats() -> None:
    usual = reference_inputs([FLOATS, IDS], 0)

    found = nan_inputs(usual)

    assert np.isnan(found["x"]).all()
    assert found["ids"].tolist() == usual["ids"].tolist()


def test_nudges_are_small_and_move_each_element_both_ways() -> None:
    usual = reference_inputs([FLOATS, IDS], 0)

    up, down = nudged_inputs(usual)

    moved = [found["x"].astype("float64") / usual["x"] - 1.0 for found in (up, down)]
    assert np.abs(moved).max() == pytest.approx(2.0**-18, rel=0.1)
    assert (moved[0] * moved[1] < 0).all()
    assert (moved[0] > 0).any()
    assert (moved[0] < 0).any()
    assert list(nudged_inputs({"ids": usual["ids"]})) == []
