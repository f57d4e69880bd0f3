"""Samples beside a model: a few of them, and none that do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.base.errors import InputError
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.models.known_samples import (
    LARGEST_FILE,
    count_known_samples,
    read_known_sample,
    samples_file,
    samples_identity,
    spread,
    write_known_samples,
)

X = TensorSpec("x", "float32", (2,))
N = TensorSpec("n", "int64", ())


def numbered(count: int) -> list[dict[str, np.ndarray]]:
    return [{"x": np.array([i, -i], np.float32), "n": np.array(i, np.int64)} for i in range(count)]


def read_known_samples(model: Path, specs: list[TensorSpec]) -> list[dict[str, np.ndarray]]:
    count = count_known_samples(model, specs)
    return [read_known_sample(model, specs, index) for index in spread(count)]


def test_the_first_the_last_and_one_between_are_kept(tmp_path: Path) -> None:
    model = tmp_path / "net.v2.onnx"

    assert write_known_samples(model, iter(numbered(11)), 11) == 3

    assert samples_file(model).name == "net.v2.samples.npz"
    found = read_known_samples(model, [X, N])
    assert [sample["x"].tolist() for sample in found] == [[0, 0], [5, -5], [10, -10]]
    assert [int(sample["n"]) for sample in found] == [0, 5, 10]


@pytest.mark.parametrize(("count", "taken"), [(0, []), (1, [0]), (3, [0, 1, 2]), (4, [0, 1, 3])])
def test_fewer_samples_are_all_taken(count: int, taken: list[int]) -> None:
    assert spread(count) == taken


def test_what_lay_there_before_goes_where_nothing_is_kept(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    write_known_samples(model, iter(numbered(2)), 2)
    before = samples_identity(model)
    huge = {"x": np.zeros(LARGEST_FILE // 4 + 1, np.float32)}

    assert write_known_samples(model, iter([huge]), 1) == 0

    assert not samples_file(model).exists()
    assert before != samples_identity(model) == ""
    assert read_known_samples(model, [X]) == []


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"y": np.zeros((1, 2), np.float32)}, "no array for the input 'x'"),
        ({"x": np.zeros((1, 3), np.float32)}, r"samples of the input 'x' are float32\[N, 2\]"),
        ({"x": np.zeros((1, 2), np.int32)}, r"int32\[1, 2\], and samples"),
        ({"x": np.zeros((1, 2), np.float64)}, "float64"),
        ({"x": np.full((1, 2), np.nan, np.float32)}, "NaN"),
    ],
)
def test_samples_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], sentence: str
) -> None:
    np.savez(tmp_path / "net.samples.npz", **arrays)  # type: ignore[arg-type]

    with pytest.raises(InputError, match=sentence) as caught:
        read_known_samples(tmp_path / "net.onnx", [X])
    assert caught.value.hint


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.samples.npz").write_bytes(b"no archive")

    with pytest.raises(InputError):
        read_known_samples(tmp_path / "net.onnx", [X])


def test_different_numbers_of_samples_are_refused(tmp_path: Path) -> None:
    arrays = {"x": np.zeros((2, 2), np.float32), "n": np.zeros(3, np.int64)}
    np.savez(tmp_path / "net.samples.npz", **arrays)  # type: ignore[arg-type]

    with pytest.raises(InputError, match="different numbers"):
        read_known_samples(tmp_path / "net.onnx", [X, N])


def test_floats_for_an_input_that_became_integers_are_quantised(tmp_path: Path) -> None:
    """As `edgekit quantize` writes them beside a model that a build gives `--ends int8`."""
    model = tmp_path / "net.onnx"
    floats = np.array([[0.5, -0.26], [100.0, -100.0]], np.float32)
    np.savez(samples_file(model), x=floats)
    integers = replace(X, dtype="int8", quantization=Quantization((0.25,), (3,)))

    found = read_known_samples(model, [integers])

    assert [sample["x"].tolist() for sample in found] == [[5, 2], [127, -128]]
    assert {sample["x"].dtype for sample in found} == {np.dtype("int8")}
    with pytest.raises(InputError, match="samples of the input 'x' are int8"):
        read_known_samples(model, [replace(integers, quantization=None)])
