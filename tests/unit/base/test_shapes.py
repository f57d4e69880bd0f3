from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.shapes import Shape, ShapeError, has_range, largest, read_shape, shape_text
from edgekit.base.tensors import Range, TensorSpec, Varying

SIZES = st.integers(1, 10**11)
RANGES = st.builds(
    lambda low, more, name: Range(low, low + more, name),
    SIZES,
    st.integers(1, 1000),
    st.sampled_from(["", "n", "x", "sequence_length"]),
)
SHAPES = st.lists(SIZES | RANGES, min_size=1, max_size=16).map(tuple)


@given(SHAPES)
def test_a_shape_comes_back_as_it_was_written(shape: Shape) -> None:
    assert read_shape(shape_text(shape)) == shape
    assert read_shape(shape_text(shape).replace(")x", "), ")) == shape
    assert read_shape(shape) == shape


def test_the_forms_of_a_range() -> None:
    expected = (1, Range(1, 512))

    assert read_shape("1x(1..512)") == read_shape("1,1..512") == read_shape([1, "(1 .. 512)"])
    assert read_shape("1x(1..512)") == expected
    assert read_shape("(n:1..512)") == (Range(1, 512, "n"),)
    assert largest(expected) == (1, 512)
    assert has_range(expected)


def test_a_range_of_one_size_is_that_size() -> None:
    assert read_shape("1x(7..7)") == (1, 7)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("1x(512..1)", "smallest size is above"), ("(0..3)", "at least one"), ("1..2..3", "list")],
)
def test_a_wrong_range_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        read_shape(text)


@pytest.mark.parametrize("value", [True, 1.5, None, -1, 10**13, [1], Range(3, 1), Range(0, 2)])
def test_what_is_no_dimension_is_refused(value: object) -> None:
    with pytest.raises(ShapeError):
        read_shape([1, value])


def test_a_tensor_admits_the_sizes_of_its_range() -> None:
    spec = TensorSpec("ids", "int64", (1, 8), varying=(Varying(1, 2, "n"),))

    assert [spec.admits((1, size)) for size in (1, 2, 8, 9)] == [False, True, True, False]
    assert not spec.admits((2, 4))
    assert not spec.admits((4,))
    assert spec.shape_in_words() == "[1, 2..8]"
