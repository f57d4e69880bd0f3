"""What counts as the same number, and what a difference is reported as."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.models.comparison import (
    EXACT,
    ON_TIES,
    QUANTISED_STEPS,
    Leeway,
    TensorComparison,
    Tolerance,
    Widening,
    compare,
    compare_tensor,
    tolerance_for,
)

STEPPED = Quantization((0.1,), (0,))


def compared(
    expected: object, actual: object, dtype: str = "float32", tolerance: Tolerance | None = None
) -> TensorComparison:
    left, right = np.array(expected, dtype), np.array(actual, dtype)
    spec = TensorSpec("y", left.dtype.name, left.shape)
    return compare_tensor(left, right, spec, tolerance or tolerance_for(spec))


def test_a_float_may_be_off_by_a_share_of_itself_and_of_the_largest() -> None:
    assert compared([1000.0, 1.0], [1000.9, 1.0]).passed
    assert compared([1000.0, 0.0], [1000.0, 0.099]).passed
    assert not compared([1000.0, 0.0], [1000.0, 0.102]).passed
    assert not compared([1000.0, 1.0], [1001.2, 1.0]).passed


def test_small_tensors_are_held_to_their_own_scale() -> None:
    assert compared([1e-20, 0.0], [1.0005e-20, 0.0]).passed
    assert not compared([1e-20, 0.0], [2e-20, 0.0]).passed


def test_the_oracles_own_error_counts_in_the_tail_of_a_sigmoid() -> None:
    assert compared([5.4e-6, 3e-6], [5.4e-6, 3.2e-6]).passed
    assert not compared([5.4e-6, 3e-6], [5.4e-6, 3.4e-6]).passed
    assert not compared([5.4e-8, 3e-8], [5.4e-8, 2e-7]).passed


def test_a_tensor_of_zeros_leaves_room_for_rounding_only() -> None:
    assert compared([0.0, 0.0], [9e-8, 0.0]).passed
    assert not compared([0.0, 0.0], [2e-7, 0.0]).passed


def test_the_worst_element_comes_with_its_index_and_both_values() -> None:
    found = compared([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.5], [3.01, 4.0]])

    assert not found.passed
    assert (found.out_of_tolerance, found.elements) == (2, 4)
    assert found.worst is not None
    assert (found.worst.index, found.worst.expected, found.worst.actual) == ((0, 1), 2.0, 2.5)
    assert found.max_error == 0.5
    assert found.largest == 4.0


def test_the_worst_element_is_the_one_furthest_beyond_its_own_allowance() -> None:
    found = compared([1000.0, 0.001], [1000.5, 0.2])

    assert found.out_of_tolerance == 1
    assert found.max_error == 0.5, "the largest error, though it is allowed"
    assert found.worst is not None and found.worst.index == (1,)


def test_an_equal_element_is_never_the_worst() -> None:
    found = compared([0.0, 1000.0], [0.0, 1000.5])

    assert found.passed
    assert found.worst is not None and found.worst.index == (1,)


def test_one_wrong_output_among_right_ones_fails_the_verification() -> None:
    specs = [TensorSpec(name, "float32", (1,)) for name in ("a", "b", "c")]
    expected = {spec.name: np.ones(1, np.float32) for spec in specs}

    found = compare(expected, {**expected, "b": np.zeros(1, np.float32)}, specs)

    assert [tensor.passed for tensor in found.tensors] == [True, False, True]
    assert not found.passed
    assert compare(expected, expected, specs).passed


@pytest.mark.parametrize(
    ("expected", "actual", "passes"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-np.inf, np.inf, False),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (np.inf, 1e38, False),
        (1e38, np.inf, False),
        (np.nan, np.inf, False),
    ],
)
def test_nan_and_infinity_must_stand_in_the_same_places(
    expected: float, actual: float, passes: bool
) -> None:
    found = compared([expected, 1.0], [actual, 1.0])

    assert found.passed is passes
    assert found.max_error == (0.0 if passes else np.inf)
    assert found.worst is None if passes else found.worst and found.worst.index == (0,)


def test_integers_and_flags_are_exact_even_where_floats_see_no_difference() -> None:
    big = 2**62
    assert compared([big], [big], "int64").passed
    assert not compared([big], [big + 1], "int64").passed
    assert not compared([2**64 - 1], [2**64 - 2], "uint64").passed
    assert not compared([True, False], [True, True], "bool").passed
    found = compared([big], [big + 1], "int64")
    assert found.worst is not None
    assert (found.worst.expected, found.worst.actual) == (big, big + 1)


def test_quantised_outputs_are_counted_in_steps() -> None:
    spec = TensorSpec("y", "int8", (3,), STEPPED)
    expected = np.array([0, 10, -128], np.int8)

    step = np.array([QUANTISED_STEPS, 0, QUANTISED_STEPS], np.int8)

    at_limit = compare({"y": expected}, {"y": expected + step}, [spec])
    beyond = compare({"y": expected}, {"y": expected + step * 2}, [spec])

    assert at_limit.passed and not beyond.passed
    assert (beyond.tensors[0].unit, beyond.tensors[0].max_error) == ("steps", QUANTISED_STEPS + 1)


def test_few_elements_lie_on_ties() -> None:
    """A zero point that is off by one moves every element by one step."""
    spec = TensorSpec("y", "int8", (1000,), STEPPED)
    expected = np.arange(1000).astype(np.int8)
    tied = expected.copy()
    tied[:250] ^= 1

    assert compare({"y": expected}, {"y": tied}, [spec]).passed
    tied[250] ^= 1
    assert not compare({"y": expected}, {"y": tied}, [spec]).passed
    assert not compare({"y": expected}, {"y": expected ^ np.int8(1)}, [spec]).passed


def test_a_leeway_is_for_its_share_of_the_elements_and_for_no_more_than_it_says() -> None:
    spec = TensorSpec("y", "float32", (100,))
    expected = np.linspace(-1, 1, 100, dtype=np.float32)
    leeway = Leeway(allowed=0.25, share=0.1, reason="one step of a node")
    tolerance = {"y": tolerance_for(spec, leeway=leeway)}

    def passes(elements: int, error: float) -> bool:
        actual = expected.copy()
        actual[:elements] += np.float32(error)
        return compare({"y": expected}, {"y": actual}, [spec], tolerance).passed

    assert passes(10, 0.25)
    assert not passes(11, 0.25)
    assert not passes(10, 0.26)
    assert passes(100, 5e-5)


def test_steps_do_not_wrap_around() -> None:
    spec = TensorSpec("y", "int8", (1,), STEPPED)

    found = compare({"y": np.array([-128], np.int8)}, {"y": np.array([127], np.int8)}, [spec])

    assert found.tensors[0].max_error == 255


@pytest.mark.parametrize(
    ("dtype", "steps", "passes"),
    [("float16", 2**-9, True), ("float16", 0.03, False), ("bfloat16", 2**-6, True)],
)
def test_short_floats_have_room_for_their_own_rounding(
    dtype: str, steps: float, passes: bool
) -> None:
    real = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    expected = np.linspace(-1, 1, 9).astype(real)
    actual = (expected.astype(np.float32) * (1 + steps)).astype(real)
    spec = TensorSpec("y", dtype, (9,))

    assert compare({"y": expected}, {"y": actual}, [spec]).passed is passes


def test_a_user_may_widen_what_has_a_width() -> None:
    floats, steps = TensorSpec("y", "float32", (2,)), TensorSpec("y", "int8", (2,), STEPPED)
    wide = Widening(rtol=0.5, atol=0.25, steps=9)

    assert tolerance_for(floats, wide) == Tolerance(
        rtol=0.5, of_max=1e-4, atol=0.25, oracle_noise=5e-7
    )
    assert tolerance_for(steps, wide) == Tolerance(steps=9)
    assert tolerance_for(steps, Widening()) == Tolerance(steps=0, leeway=ON_TIES)
    assert tolerance_for(TensorSpec("y", "int32", (2,)), Widening(atol=2)) == Tolerance(atol=2)
    assert tolerance_for(TensorSpec("y", "bool", (2,)), wide) == EXACT
    assert tolerance_for(floats, Widening()) == tolerance_for(floats)


def test_real_numbers_are_never_counted_in_steps() -> None:
    floats = TensorSpec("y", "float32", (2,))

    assert tolerance_for(TensorSpec("y", "float32", (2,), STEPPED)) == tolerance_for(floats)


def test_other_shapes_types_and_missing_outputs_fail_with_a_reason() -> None:
    spec = TensorSpec("y", "float32", (2,))
    good = np.zeros(2, np.float32)

    for actual, says in (
        ({"y": np.zeros((2, 1), np.float32)}, "expected float32[2], got float32[2, 1]"),
        ({"y": np.zeros(2)}, "got float64[2]"),
        ({}, "the device gives no such output"),
    ):
        found = compare({"y": good}, actual, [spec])
        assert not found.passed
        assert says in (found.tensors[0].mismatch or "")


def test_empty_and_scalar_tensors_compare() -> None:
    assert compared(np.zeros((0, 3)), np.zeros((0, 3))).passed
    scalar = compared(1.0, 2.0)
    assert scalar.worst is not None and scalar.worst.index == ()


@pytest.mark.parametrize(
    ("expected", "actual", "agrees"),
    [
        ([[0.1, 0.9]], [[0.2, 0.8]], True),
        ([[0.1, 0.9]], [[0.9, 0.1]], False),
        ([[0.5, 0.5]], [[0.4, 0.6]], True),
        ([[np.nan, 0.5]], [[0.4, 0.6]], None),
        ([[0.1, 0.9], [0.9, 0.1]], [[0.1, 0.9], [0.9, 0.1]], None),
        ([0.3], [0.3], None),
    ],
)
def test_top1_is_told_for_class_scores_only(
    expected: object, actual: object, agrees: bool | None
) -> None:
    assert compared(expected, actual).top1_agrees is agrees


FLOATS = hnp.arrays(
    np.float32, hnp.array_shapes(max_dims=3, max_side=4), elements=st.floats(width=32)
)


@given(FLOATS)
def test_every_tensor_equals_itself_exactly(array: np.ndarray) -> None:
    found = compared(array, array.copy(), tolerance=EXACT)

    assert found.passed and found.max_error == 0.0 and found.worst is None


@given(FLOATS, st.data())
def test_one_changed_element_is_found_and_named(array: np.ndarray, data: st.DataObject) -> None:
    index = tuple(data.draw(st.integers(0, extent - 1)) for extent in array.shape)
    changed = array.copy()
    value = data.draw(st.floats(width=32).filter(lambda v: v != array[index]))
    changed[index] = value
    if np.isnan(value) and np.isnan(array[index]):
        return

    found = compared(array, changed, tolerance=EXACT)

    assert not found.passed
    assert found.out_of_tolerance == 1
    assert found.worst is not None and found.worst.index == index
