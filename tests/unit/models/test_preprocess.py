"""Preprocessing is read strictly, and images become tensors exactly as declared."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edgekit.base.decode import DecodeError, decode
from edgekit.base.errors import InputError
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.models.images import load_image
from edgekit.models.preprocess import Preprocess, example_toml

NCHW = TensorSpec("image", "float32", (1, 3, 2, 4))
NHWC = TensorSpec("image", "float32", (1, 2, 4, 3))


def write_image(path: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def colours(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Two rows of four pixels, every channel different, in a format that loses nothing."""
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10
    return write_image(tmp_path / "colours.png", pixels), pixels


def test_a_declaration_may_use_fractions_and_one_number_for_all_channels() -> None:
    table = tomli.loads('layout = "NCHW"\nscale = "1/255"\nmean = 0.5\nstd = [0.25, 0.5, 1]')

    found = decode(Preprocess, table, "here")

    assert found == Preprocess("NCHW", "rgb", "stretch", (0.5,), (0.25, 0.5, 1.0), 1 / 255)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("colour = 'rgb'", "did you mean color?"),
        ("color = 'bgrr'", "did you mean bgr?"),
        ("layout = 'nchw'", "did you mean NCHW?"),
        ("mean = [1.0, 2.0]", "2 numbers in 'mean'"),
        ("std = 0", "std of 0"),
        ("scale = 0.0", "scale of 0"),
        ("scale = '1/0'", "scale must be a number, or a fraction"),
        ("scale = true", "scale must be a number, or a fraction"),
        ("scale = nan", "scale must be a number, or a fraction"),
        ("scale = '9999999999999999/1'", "scale must be a number, or a fraction"),
        ("mean = ['x']", "mean[0] must be a number, or a fraction"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(line: str, says: str) -> None:
    table = {"layout": "NCHW"} | tomli.loads(line)

    with pytest.raises(DecodeError) as caught:
        decode(Preprocess, table, "edgekit.toml: [preprocess.image]")

    assert says in str(caught.value)
    assert "edgekit.toml: [preprocess.image]" in str(caught.value)


def test_a_declaration_without_a_layout_says_so() -> None:
    with pytest.raises(DecodeError, match=r"layout must be one of .NCHW., .NHWC., and is missing"):
        decode(Preprocess, {}, "here")


@given(
    st.builds(
        Preprocess,
        layout=st.sampled_from(["NCHW", "NHWC"]),
        color=st.sampled_from(["rgb", "bgr"]),
        resize=st.sampled_from(["stretch", "crop", "pad"]),
        mean=st.tuples(*[st.floats(-1e6, 1e6)] * 3),
        std=st.tuples(*[st.floats(1e-6, 1e6)] * 3),
        scale=st.floats(1e-9, 1e3),
    )
)
def test_a_declaration_survives_being_written_and_read(preprocess: Preprocess) -> None:
    assert decode(Preprocess, dataclasses.asdict(preprocess), "here") == preprocess


@given(st.dictionaries(st.sampled_from(["layout", "mean", "std", "scale", "color"]), st.text()))
def test_any_declaration_is_read_or_refused_with_a_sentence(table: dict[str, object]) -> None:
    try:
        decode(Preprocess, table, "here")
    except DecodeError as error:
        assert error.problems


@pytest.mark.parametrize(
    "spec",
    [
        NCHW,
        NHWC,
        TensorSpec('odd "name"', "uint8", (1, 1, 28, 28)),
        TensorSpec("x", "int8", (1, 96, 96, 1), Quantization((0.1,), (3,))),
    ],
)
def test_the_example_to_paste_is_a_valid_declaration(spec: TensorSpec, tmp_path: Path) -> None:
    table = tomli.loads(example_toml(spec))["preprocess"][spec.name]
    image = write_image(tmp_path / "x.png", np.zeros((5, 7, 3), np.uint8))

    tensor = load_image(image, spec, decode(Preprocess, table, "here"))

    assert (tensor.shape, tensor.dtype.name) == (spec.shape, spec.dtype)


def test_the_example_to_paste_scales_pixels_unless_the_input_stores_them_as_they_are() -> None:
    shape, steps = (1, 8, 8, 3), Quantization((0.5,), (0,))
    for spec, scale in (
        (TensorSpec("x", "uint8", shape), "scale = 1.0"),
        (TensorSpec("x", "uint8", shape, steps), 'scale = "1/255"'),
        (TensorSpec("x", "float32", shape), 'scale = "1/255"'),
    ):
        assert scale in example_toml(spec).splitlines()


def test_pixels_are_scaled_then_normalised_a_channel(colours: tuple[Path, np.ndarray]) -> None:
    path, pixels = colours
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)

    tensor = load_image(path, NHWC, Preprocess("NHWC", mean=mean, std=std, scale=1 / 255))

    expected = [(pixels[:, :, c] / 255 - mean[c]) / std[c] for c in range(3)]
    np.testing.assert_allclose(tensor[0], np.stack(expected, axis=2), rtol=1e-6, atol=1e-7)


def test_layout_and_channel_order_are_as_declared(colours: tuple[Path, np.ndarray]) -> None:
    path, pixels = colours

    tensor = load_image(path, NCHW, Preprocess("NCHW", color="bgr"))

    np.testing.assert_array_equal(tensor[0, 0], pixels[:, :, 2])
    np.testing.assert_array_equal(tensor[0, 2], pixels[:, :, 0])


def test_a_quantised_input_gets_rounded_and_clipped_steps(tmp_path: Path) -> None:
    path = write_image(tmp_path / "x.png", np.full((1, 1, 3), (0, 100, 255), np.uint8))
    spec = TensorSpec("x", "int8", (1, 1, 1, 3), Quantization((1 / 128,), (-1,)))

    tensor = load_image(path, spec, Preprocess("NHWC", scale=1 / 127.5, mean=(1.0,)))

    # -1 -> -129, clipped; 100/127.5 - 1 = -0.2157 -> -28.6; 1 -> 127
    assert tensor.reshape(-1).tolist() == [-128, -29, 127]


def test_resizing_stretches_crops_or_pads(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[:, :, :] = np.array([0, 200, 200, 0], np.uint8)[None, :, None]
    path = write_image(tmp_path / "wide.png", pixels)
    spec = TensorSpec("x", "float32", (1, 2, 2, 3))

    cropped = load_image(path, spec, Preprocess("NHWC", resize="crop"))
    padded = load_image(
        path, TensorSpec("x", "float32", (1, 4, 4, 3)), Preprocess("NHWC", resize="pad")
    )
    stretched = load_image(path, spec, Preprocess("NHWC", resize="stretch"))

    assert cropped[0, :, :, 0].tolist() == [[200, 200], [200, 200]]
    assert padded[0, :, 0, 0].tolist() == [0, 0, 0, 0]
    assert padded[0, :, 1, 0].tolist() == [0, 200, 200, 0]
    assert np.ptp(stretched) == 0 and 50 < stretched.max() < 150


def test_grey_of_sixteen_bits_is_scaled_and_not_clipped(tmp_path: Path) -> None:
    path = write_image(tmp_path / "deep.png", np.array([[0, 32768, 65535]], np.uint16))
    spec = TensorSpec("x", "float32", (1, 1, 1, 3))

    tensor = load_image(path, spec, Preprocess("NCHW", color="gray"))

    assert tensor.reshape(-1).tolist() == [0, 128, 255]


def test_an_input_that_is_no_image_is_refused() -> None:
    with pytest.raises(InputError, match="takes no rgb image"):
        load_image(Path("x.png"), TensorSpec("x", "float32", (1, 10)), Preprocess("NCHW"))


def test_an_image_cut_off_is_refused(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    for name in ("x.png", "x.jpg"):
        whole = write_image(tmp_path / name, noise).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])

        with pytest.raises(InputError, match="no image that can be read"):
            load_image(tmp_path / name, NCHW, Preprocess("NCHW"))


def test_an_image_that_is_not_there_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*x\.png"):
        load_image(tmp_path / "x.png", NCHW, Preprocess("NCHW"))


def test_an_image_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_text("not an image")

    with pytest.raises(InputError, match="no image that can be read"):
        load_image(tmp_path / "x.png", NCHW, Preprocess("NCHW"))


def test_an_image_that_unpacks_to_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", b"")]
    parts = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    ]
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))

    with pytest.raises(InputError, match="more pixels than edgekit decodes"):
        load_image(tmp_path / "bomb.png", NCHW, Preprocess("NCHW"))
