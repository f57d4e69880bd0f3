"""Reference inputs are the same everywhere; a user's files are checked before they are read."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edgekit.base.arrays import DTYPES, numpy_dtype, read_array
from edgekit.base.errors import EdgekitError, InputError, UnsupportedModelError
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.bundle.manifest import InputEntry
from edgekit.bundle.samples import (
    InputFile,
    count_samples,
    iterate_samples,
    load_samples,
    parse_input_argument,
)
from edgekit.models.inputs import reference_inputs
from edgekit.models.preprocess import Preprocess

X = InputEntry(TensorSpec("x", "float32", (2, 3)), None)
IDS = InputEntry(TensorSpec("ids", "int64", (4,)), None)
PHOTO = InputEntry(TensorSpec("photo", "float32", (1, 3, 8, 8)), None)
GOOD = np.arange(6, dtype=np.float32).reshape(2, 3)


def save(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


def test_reference_inputs_do_not_change_between_machines_and_versions() -> None:
    specs = [TensorSpec("x", "float32", (3,)), TensorSpec("n", "int8", (3,))]

    found = reference_inputs(specs, seed=0)

    assert found["x"].tolist() == [0.6037625074386597, 0.6902896761894226, 0.9122917056083679]
    assert found["n"].tolist() == [41, -60, 88]


def test_reference_inputs_that_are_indices_reach_both_ends() -> None:
    specs = [TensorSpec("ids", "int64", (5,)), TensorSpec("one", "uint8", ())]

    found = reference_inputs(specs, 0, {"ids": (-7, 6), "one": (0, 3)})

    assert found["ids"].tolist()[:2] == [-7, 6]
    assert set(found["ids"].tolist()) <= set(range(-7, 7))
    assert found["one"] == 0


@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=4),
    st.integers(0, 2**63),
    st.booleans(),
)
def test_reference_inputs_fit_any_specification(
    dtype: str, shape: list[int], seed: int, quantised: bool
) -> None:
    quantization = Quantization((0.5,), (3,)) if quantised else None
    spec = TensorSpec("x", dtype, tuple(shape), quantization)

    array = reference_inputs([spec], seed)["x"]

    assert (array.dtype, array.shape) == (numpy_dtype(dtype), tuple(shape))
    assert np.isfinite(array.astype(np.float64)).all()
    if dtype in ("int32", "int64", "uint32", "uint64") and not quantised:
        assert set(array.reshape(-1).tolist()) <= {0, 1}


def test_reference_inputs_differ_by_name_and_by_seed() -> None:
    specs = [TensorSpec(name, "float32", (8,)) for name in ("a", "b")]
    first, second = reference_inputs(specs, 0), reference_inputs(specs, 1)

    assert (first["a"] != first["b"]).any()
    assert (first["a"] != second["a"]).any()


@pytest.mark.parametrize("dtype", ["complex64", "int4", "string", "float8_e4m3fn"])
def test_a_type_that_cannot_cross_the_border_is_refused(dtype: str) -> None:
    with pytest.raises(UnsupportedModelError, match=dtype):
        reference_inputs([TensorSpec("x", dtype, (1,))], 0)


def test_an_absurd_input_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(UnsupportedModelError, match="4 GiB"):
        reference_inputs([TensorSpec("x", "float32", (1 << 20, 1 << 20))], 0)


def test_an_input_argument_is_a_name_and_a_file_or_a_file(tmp_path: Path) -> None:
    odd = save(tmp_path / "a=b.npy", GOOD)

    assert parse_input_argument("x=dir/cat.npy") == InputFile("x", Path("dir/cat.npy"))
    assert parse_input_argument("cat.npy") == InputFile(None, Path("cat.npy"))
    assert parse_input_argument(str(odd)) == InputFile(None, odd)
    with pytest.raises(InputError, match="not a name and a file"):
        parse_input_argument("=cat.npy")


def test_npy_and_npz_files_become_samples(tmp_path: Path) -> None:
    npy = save(tmp_path / "x.npy", GOOD)
    np.savez(tmp_path / "both.npz", x=GOOD * 2, ids=np.array([1, 0, 1, 0]))

    (alone,) = load_samples([InputFile(None, npy)], [X])
    (both,) = load_samples([InputFile(None, tmp_path / "both.npz")], [X, IDS])

    np.testing.assert_array_equal(alone.inputs["x"], GOOD)
    np.testing.assert_array_equal(both.inputs["x"], GOOD * 2)
    assert both.inputs["ids"].tolist() == [1, 0, 1, 0]


def test_the_only_array_of_an_npz_goes_where_it_is_sent(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", GOOD)
    np.savez(tmp_path / "two.npz", GOOD, GOOD)

    (sample,) = load_samples([InputFile("x", tmp_path / "one.npz")], [X])

    np.testing.assert_array_equal(sample.inputs["x"], GOOD)
    assert "holds no array named 'x'" in refused(tmp_path / "two.npz", X, name="x")


def test_of_several_arrays_in_an_npz_the_one_of_the_inputs_name_is_taken(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", y=GOOD * 2, x=GOOD, unknown=GOOD * 3)

    (sample,) = load_samples([InputFile("x", tmp_path / "both.npz")], [X])

    np.testing.assert_array_equal(sample.inputs["x"], GOOD)


def test_a_suffix_may_be_in_capitals(tmp_path: Path) -> None:
    save(tmp_path / "a.npy", GOOD).rename(tmp_path / "A.NPY")
    (tmp_path / "notes.txt").write_text("no sample")

    (sample,) = load_samples([InputFile(None, tmp_path)], [X])

    assert sample.name == "A.NPY"


def test_folders_and_patterns_are_several_samples_that_may_share_an_input(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for i in range(3):
        save(tmp_path / f"many/{i}.npy", GOOD + i)
    shared = save(tmp_path / "ids.npy", np.zeros(4, np.int64))

    for path in (tmp_path / "many", tmp_path / "many/*.npy"):
        files = [InputFile("x", path), InputFile("ids", shared)]
        samples = load_samples(files, [X, IDS])

        assert count_samples(files, [X, IDS]) == 3
        assert [sample.name for sample in samples] == ["0.npy", "1.npy", "2.npy"]
        assert [sample.inputs["x"][0, 0] for sample in samples] == [0, 1, 2]


def test_samples_are_read_when_their_turn_comes(tmp_path: Path) -> None:
    good, bad = save(tmp_path / "a.npy", GOOD), save(tmp_path / "b.npy", GOOD + np.nan)

    samples = iterate_samples([InputFile("x", good), InputFile("x", bad)], [X])

    assert next(samples).name == "a.npy"
    with pytest.raises(InputError, match="NaN"):
        next(samples)


@pytest.mark.parametrize("name", ["b.npy", "b.npz", "gone.npy", "b.png"])
def test_a_file_that_does_not_fit_is_told_before_the_first_is_read(
    tmp_path: Path, name: str
) -> None:
    """No device is opened for it."""
    good = save(tmp_path / "a.npy", GOOD)
    save(tmp_path / "b.npy", GOOD[:1])
    np.savez(tmp_path / "b.npz", x=GOOD[:1])
    (tmp_path / "b.png").write_bytes(b"no picture")

    with pytest.raises(InputError):
        iterate_samples([InputFile("x", good), InputFile("x", tmp_path / name)], [X])


def test_samples_of_a_folder_come_as_people_count(tmp_path: Path) -> None:
    for i in (10, 100, 2, 1):
        save(tmp_path / f"img{i}.npy", GOOD)

    for path in (tmp_path, tmp_path / "*.npy"):
        names = [sample.name for sample in load_samples([InputFile("x", path)], [X])]
        assert names == ["img1.npy", "img2.npy", "img10.npy", "img100.npy"]


def refused(path: Path, *entries: InputEntry, name: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load_samples([InputFile(name, path)], entries or [X])
    return f"{caught.value.message} / {caught.value.hint}"


def test_a_wrong_shape_says_both_shapes_and_how_to_mend_it(tmp_path: Path) -> None:
    assert "[3, 2], and the input 'x' takes [2, 3]" in refused(save(tmp_path / "x.npy", GOOD.T))
    batch = InputEntry(TensorSpec("x", "float32", (1, 2, 3)), None)
    assert "array[None]" in refused(save(tmp_path / "y.npy", GOOD), batch)
    assert "see numpy.transpose" in refused(tmp_path / "x.npy")
    assert "transpose" not in refused(save(tmp_path / "z.npy", GOOD[:1]))


def test_a_wrong_dtype_says_both_and_how_to_convert(tmp_path: Path) -> None:
    wrong = save(tmp_path / "x.npy", GOOD.astype(np.float64))
    quantised = InputEntry(TensorSpec("x", "int8", (2, 3), Quantization((0.5,), (3,))), None)

    assert "holds float64" in refused(wrong)
    assert 'astype("float32")' in refused(wrong)
    assert "round(value / 0.5) + 3" in refused(wrong, quantised)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_unless_meant(tmp_path: Path, value: float) -> None:
    array = GOOD.copy()
    array[1, 2] = value
    path = save(tmp_path / "x.npy", array)

    said = refused(path)
    assert f"1 of {array.size} elements, the first at [1, 2]" in said
    assert "--allow-nonfinite" in said
    (sample,) = load_samples([InputFile(None, path)], [X], allow_nonfinite=True)
    np.testing.assert_array_equal(sample.inputs["x"], array)


def test_bfloat16_and_foreign_byte_order_are_understood(tmp_path: Path) -> None:
    entry = InputEntry(TensorSpec("x", "bfloat16", (2, 3)), None)
    stored = save(tmp_path / "x.npy", GOOD.astype(ml_dtypes.bfloat16))
    foreign = save(tmp_path / "y.npy", GOOD.astype(">f4"))

    (sample,) = load_samples([InputFile(None, stored)], [entry])
    (turned,) = load_samples([InputFile(None, foreign)], [X])

    assert sample.inputs["x"].dtype == numpy_dtype("bfloat16")
    np.testing.assert_array_equal(sample.inputs["x"].astype(np.float32), GOOD)
    assert turned.inputs["x"].dtype.isnative
    np.testing.assert_array_equal(turned.inputs["x"], GOOD)


def test_names_are_checked_with_a_suggestion(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", GOOD)
    np.savez(tmp_path / "z.npz", idz=np.zeros(4, np.int64))

    assert "did you mean ids?" in refused(path, X, IDS, name="idz")
    assert "did you mean ids?" in refused(tmp_path / "z.npz", X, IDS)
    assert "does not say which input" in refused(path, X, IDS)
    assert "no file was given for the input 'ids'" in refused(path, X, IDS, name="x")


def test_counts_that_do_not_pair_up_are_refused(tmp_path: Path) -> None:
    x, ids = save(tmp_path / "x.npy", GOOD), save(tmp_path / "i.npy", np.zeros(4, np.int64))
    files = [InputFile("x", x)] * 3 + [InputFile("ids", ids)] * 2

    with pytest.raises(InputError, match="has 2 files where another has 3"):
        load_samples(files, [X, IDS])


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)

    assert "pickled Python objects" in refused(path)
    with pytest.raises(InputError, match="pickled"):
        read_array(path)


def test_what_is_no_numpy_data_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"not numpy", b"\x93NUMPY\x01\x00\x10\x00garbage"):
        (tmp_path / "x.npy").write_bytes(content)
        (tmp_path / "x.npz").write_bytes(content)
        assert "cannot be read as numpy data" in refused(tmp_path / "x.npy")
        assert "cannot be read as numpy data" in refused(tmp_path / "x.npz")
    assert "there is no file" in refused(tmp_path / "none.npy")
    assert "suffix" in refused(tmp_path / "x.txt")
    assert "no file matches" in refused(tmp_path / "*.jpg")
    (tmp_path / "empty").mkdir()
    assert "holds no input files" in refused(tmp_path / "empty")


def test_a_shape_that_lies_takes_no_memory(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(buffer, header)
    (tmp_path / "x.npy").write_bytes(buffer.getvalue())
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", buffer.getvalue())

    assert "has shape [1099511627776]" in refused(tmp_path / "x.npy")
    assert "has shape [1099511627776]" in refused(tmp_path / "x.npz")
    with pytest.raises(InputError, match="holds 0 bytes where its shape needs"):
        read_array(tmp_path / "x.npy")


@given(st.binary(max_size=200), st.sampled_from(["x.npy", "x.npz", "x.png"]))
def test_any_bytes_are_read_or_refused_with_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    magic = {"x.npy": b"\x93NUMPY\x01\x00", "x.npz": b"PK\x03\x04", "x.png": b"\x89PNG\r\n\x1a\n"}
    entry = InputEntry(TensorSpec("x", "float32", (1, 3, 8, 8)), Preprocess("NCHW"))
    for content in (data, magic[name] + data):
        path.write_bytes(content)
        try:
            load_samples([InputFile(None, path)], [entry])
        except EdgekitError as error:
            assert error.hint


def test_an_image_without_a_declaration_shows_the_lines_to_add(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "cat.png")

    said = refused(tmp_path / "cat.png", PHOTO)

    assert "nothing says how an image becomes the input 'photo'" in said
    assert '[preprocess.photo]\nlayout = "NCHW"' in said


def test_an_image_goes_through_the_declaration(tmp_path: Path) -> None:
    Image.new("RGB", (32, 8), (255, 0, 51)).save(tmp_path / "cat.png")
    entry = InputEntry(PHOTO.spec, Preprocess("NCHW", scale=1 / 255))

    (sample,) = load_samples([InputFile("photo", tmp_path / "cat.png")], [entry])

    np.testing.assert_allclose(sample.inputs["photo"][0, :, 0, 0], [1.0, 0.0, 0.2], rtol=1e-6)
