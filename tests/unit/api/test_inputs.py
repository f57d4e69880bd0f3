"""Arrays that a caller gives, checked against what a bundle takes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from edgekit.api.inputs import checked_arrays
from edgekit.base.errors import InputError
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.bundle.manifest import InputEntry

FLOAT = InputEntry(TensorSpec("image", "float32", (1, 2)), None)
INT8 = InputEntry(TensorSpec("q", "int8", (2,), Quantization((0.5,), (3,))), None)


def checked(given: dict[str, Any], *entries: InputEntry) -> dict[str, np.ndarray]:
    return checked_arrays(given, entries or (FLOAT,), allow_nonfinite=False)


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2]],
        ((1.0, 2.0),),
        np.array([[1, 2]], "float32"),
        np.array([[1, 2]], ">f4"),
        np.array([[1, 9, 2, 9]], "float32")[:, ::2],
    ],
)
def test_lists_and_arrays_of_any_layout_become_what_the_input_takes(value: Any) -> None:
    array = checked({"image": value})["image"]

    assert (array.dtype, array.tolist()) == (np.dtype("float32"), [[1.0, 2.0]])
    assert array.dtype.isnative and array.flags.c_contiguous


@pytest.mark.parametrize(
    ("given", "says", "hint"),
    [
        ({"imag": [[1, 2]]}, "no input named 'imag'", "did you mean image"),
        ({}, "no array was given for the input 'image'", r"float32\[1, 2\]"),
        ({"image": np.zeros((1, 2))}, "holds float64", 'astype\\("float32"\\)'),
        ({"image": np.zeros(2, "float32")}, r"has shape \[2\]", "array\\[None\\]"),
        ({"image": [[1, 2, 3]]}, r"has shape \[1, 3\]", "built for"),
        ({"image": [[1, float("nan")]]}, "NaN or infinity", "allow_nonfinite"),
        ({"image": "cat.png"}, "no array of float32", "numpy array"),
        ({"image": [[1], [1, 2]]}, "no array of float32", "numpy array"),
    ],
)
def test_arrays_that_do_not_fit_are_named_with_what_to_do(
    given: dict[str, Any], says: str, hint: str
) -> None:
    with pytest.raises(InputError, match=says) as refused:
        checked(given)

    assert re.search(hint, refused.value.hint or "")


def test_a_float_for_a_quantised_input_is_told_its_scale() -> None:
    with pytest.raises(InputError) as refused:
        checked({"q": np.zeros(2, "float32")}, INT8)

    assert "round(value / 0.5) + 3 as int8" in (refused.value.hint or "")


def test_nan_is_taken_if_it_is_meant() -> None:
    arrays = checked_arrays({"image": [[float("inf"), 1]]}, (FLOAT,), allow_nonfinite=True)

    assert np.isinf(arrays["image"][0, 0])
