"""An exported application makes of pictures what Pillow and edgekit make of them."""

from __future__ import annotations

import io
import json
import re
import struct
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw
from support.app_pictures import Failed, Reader, built_reader
from support.building import run_edgekit
from support.emulated_arm import arm_emulator
from support.exports import built, checked
from support.needs import needs
from support.rpc_lab import eventually

from edgekit.base.arrays import Array
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.models.ends.drawing import COLORS
from edgekit.models.images import load_image, open_image
from edgekit.models.preprocess import Preprocess

pytestmark = needs("libjpeg")

RANDOM = np.random.default_rng(11)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return built_reader(tmp_path_factory.mktemp("reader"))


def photo(height: int, width: int, mode: str = "RGB") -> Image.Image:
    """Something with edges and gradients."""
    small = RANDOM.integers(0, 256, (max(height // 9, 2), max(width // 9, 2), 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    ImageDraw.Draw(image).rectangle((3, 2, width // 2, height // 3), (250, 10, 90))
    return image.convert(mode)


def wide() -> Image.Image:
    return Image.fromarray(RANDOM.integers(0, 65536, (20, 30), dtype=np.uint16))


PICTURES: Mapping[str, tuple[Any, str, Mapping[str, Any]]] = {
    "colours": (lambda: photo(61, 47), "png", {}),
    "grey": (lambda: photo(20, 31, "L"), "png", {}),
    "palette": (lambda: photo(33, 20, "P"), "png", {}),
    "two colours": (lambda: photo(33, 21, "1"), "png", {}),
    "transparent": (lambda: photo(15, 20, "RGBA"), "png", {}),
    "grey and transparent": (lambda: photo(15, 20, "LA"), "png", {}),
    "16 bits": (wide, "png", {}),
    "photo": (lambda: photo(61, 47), "jpeg", {"quality": 75}),
    "finely": (lambda: photo(50, 33), "jpeg", {"quality": 95, "subsampling": 0}),
    "in steps": (lambda: photo(64, 40), "jpeg", {"progressive": True}),
    "grey photo": (lambda: photo(64, 41, "L"), "jpeg", {}),
    "ppm": (lambda: photo(21, 17), "ppm", {}),
    "pgm": (lambda: photo(21, 17, "L"), "ppm", {}),
    "bmp": (lambda: photo(21, 17), "bmp", {}),
    "grey bmp": (lambda: photo(21, 17, "L"), "bmp", {}),
    "bmp of 32 bits": (lambda: photo(21, 17, "RGBA"), "bmp", {}),
}


def pixels_of(image: Image.Image) -> Array:
    """The pixels with their colours, as edgekit takes them."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8))
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("name", PICTURES)
def test_a_file_is_decoded_as_pillow_decodes_it(name: str, reader: Reader) -> None:
    make, kind, options = PICTURES[name]
    buffer = io.BytesIO()
    make().save(buffer, kind, **options)
    buffer.seek(0)
    expected = pixels_of(Image.open(buffer))
    found = reader.decode(buffer.getvalue())
    np.testing.assert_array_equal(np.broadcast_to(found, expected.shape), expected)


@pytest.mark.parametrize("kind", ["jpeg", "png"])
@pytest.mark.parametrize("how", range(1, 9))
def test_it_is_turned_as_its_exif_data_says(
    kind: str, how: int, reader: Reader, tmp_path: Path
) -> None:
    exif = Image.Exif()
    exif[0x112] = how
    path = tmp_path / f"turned.{kind}"
    photo(20, 33).save(path, exif=exif)
    np.testing.assert_array_equal(reader.read(path), np.asarray(open_image(path)))


def woven(pixels: Array) -> bytes:
    """A PNG whose pixels come in seven passes, which Pillow does not write."""
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2))
    lines = [
        b"\0" + line.tobytes()
        for y, x, down, across in (*passes, (1, 0, 2, 1))
        for line in pixels[y::down, x::across]
    ]
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 1)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(b"".join(lines))), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_an_interlaced_png_is_read(reader: Reader) -> None:
    pixels = np.asarray(photo(37, 29))
    content = woven(pixels)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), pixels)
    np.testing.assert_array_equal(reader.decode(content), pixels)


@pytest.mark.parametrize("color", ["rgb", "gray"])
@pytest.mark.parametrize("resize", ["stretch", "crop", "pad"])
@pytest.mark.parametrize("size", [(61, 47), (20, 90), (7, 5), (150, 40), (9, 40), (30, 30)])
def test_it_is_resized_as_pillow_does(
    size: tuple[int, int], resize: Any, color: Any, reader: Reader, tmp_path: Path
) -> None:
    path = tmp_path / "photo.jpg"
    photo(61, 47).save(path)
    rule = Preprocess("NCHW", color, resize, on="board", fill=114.0)
    spec = TensorSpec("image", "uint8", (*size, rule.channels))
    np.testing.assert_array_equal(reader.prepare(path, spec, rule), load_image(path, spec, rule))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int16"])
def test_what_stays_on_the_host_is_computed_as_there(
    dtype: str, reader: Reader, tmp_path: Path
) -> None:
    path = tmp_path / "photo.png"
    photo(40, 50).save(path)
    steps = Quantization((0.0173,), (-3,), None) if dtype in ("int8", "int16") else None
    rule = Preprocess(
        *("NCHW", "bgr", "pad", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 1 / 255, "host"),
        anchor="start",
    )
    spec = TensorSpec("image", dtype, (1, 3, 24, 28), quantization=steps)
    np.testing.assert_array_equal(reader.prepare(path, spec, rule), load_image(path, spec, rule))


def yuv(pixels: Array) -> Array:
    """ITU-R 601 in 8 bits, from its definition."""
    r, g, b = (pixels[..., i].astype(np.float64) / 255 for i in range(3))
    y = 0.299 * r + 0.587 * g + 0.114 * b
    planes = (16 + 219 * y, 128 + 224 * (b - y) / 1.772, 128 + 224 * (r - y) / 1.402)
    return np.rint(np.stack(planes, -1)).astype(np.uint8)


def frame_of(pixels: Array, kind: str) -> bytes:
    """A camera's frame of pixels whose neighbours in pairs are equal."""
    if kind in ("rgb24", "bgr24"):
        return (pixels if kind == "rgb24" else pixels[..., ::-1]).tobytes()
    values = yuv(pixels)
    if kind == "grey":
        return values[..., 0].tobytes()
    if kind == "nv12":
        return values[..., 0].tobytes() + values[::2, ::2, 1:].tobytes()
    made = np.empty((*values.shape[:2], 2), np.uint8)
    made[..., 0] = values[..., 0]
    made[:, ::2, 1], made[:, 1::2, 1] = values[:, ::2, 1], values[:, ::2, 2]
    return made.tobytes()


@pytest.mark.parametrize("kind", ["yuyv", "nv12", "rgb24", "bgr24", "grey"])
def test_a_bare_frame_has_its_colours(kind: str, reader: Reader, tmp_path: Path) -> None:
    pixels = RANDOM.integers(0, 256, (6, 8, 3), dtype=np.uint8).repeat(2, 0).repeat(2, 1)
    (tmp_path / "frame.raw").write_bytes(frame_of(pixels, kind))
    found = reader.frame(tmp_path / "frame.raw", f"{kind}:16x12").astype(int)
    if kind == "grey":
        np.testing.assert_array_equal(found[..., 0], yuv(pixels)[..., 0])
    else:
        # A step of a colour is up to two of red or blue.
        assert np.abs(found - pixels).max() <= (0 if "24" in kind else 2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [("yuyv:15x12", "not yuyv:15x12"), ("mjpg:16x12", "not mjpg:16x12"), ("rgb24:64x64", "12288")],
)
def test_a_frame_that_does_not_fit_is_refused(
    words: str, complaint: str, reader: Reader, tmp_path: Path
) -> None:
    (tmp_path / "frame.raw").write_bytes(bytes(100))
    with pytest.raises(Failed, match=complaint):
        reader.frame(tmp_path / "frame.raw", words)


@pytest.mark.parametrize("kind", ["png", "jpeg", "ppm", "bmp"])
def test_damaged_files_are_refused_or_read(kind: str, reader: Reader) -> None:
    buffer = io.BytesIO()
    photo(40, 30).save(buffer, kind)
    content = buffer.getvalue()
    for length in range(0, len(content) - 40, len(content) // 50):
        with pytest.raises(Failed):
            reader.decode(content[:length])
    for place in RANDOM.integers(0, min(len(content), 600), 300):
        changed = bytearray(content)
        changed[place] ^= int(RANDOM.integers(1, 256))
        try:
            reader.decode(bytes(changed))
        except Failed as failure:
            assert str(failure)


def test_a_huge_picture_is_refused_before_it_is_unpacked(reader: Reader) -> None:
    with pytest.raises(Failed, match="100 megapixels"):
        reader.decode(b"P6\n60000 60000\n255\n")


def write_detector(path: Path) -> None:
    """A model whose boxes depend on the pixels, in the form of YOLOv8."""
    weights = {
        "w": np.random.default_rng(5).normal(0, 1, (6, 3, 4, 4)).astype(np.float32),
        "shape": np.array([1, 6, 64]),
        "zero": np.array([0]),
        "four": np.array([4]),
        "six": np.array([6]),
        "axis": np.array([1]),
        "side": np.array(30, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["cells"], strides=[4, 4]),
        helper.make_node("Reshape", ["cells", "shape"], ["flat"]),
        helper.make_node("Sigmoid", ["flat"], ["all"]),
        helper.make_node("Slice", ["all", "zero", "four", "axis"], ["shares"]),
        helper.make_node("Mul", ["shares", "side"], ["boxes"]),
        helper.make_node("Slice", ["all", "four", "six", "axis"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["out"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 6, 64])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)


PROJECT = """\
schema = 1
model = "net.onnx"
board = "{board}"

[preprocess.image]
layout = "NCHW"
resize = "pad"
fill = 114
scale = "1/255"

[postprocess]
task = "boxes"
decode = "yolov8"
labels = ["a cat", "Hündchen"]
score = 0.05
iou = 0.9
most = 9
candidates = 20
"""


def exported(place: Path, board: str) -> Path:
    """A detector's application, built, in a folder with the project and a photo."""
    place.mkdir(exist_ok=True)
    write_detector(place / "net.onnx")
    (place / "edgekit.toml").write_text(PROJECT.format(board=board), encoding="utf-8")
    photo(201, 333).save(place / "photo.jpg", quality=90)
    Image.open(place / "photo.jpg").save(place / "photo.ppm")
    for command in (("build", "-o", "out"), ("export", "out", "-o", "app")):
        ran = run_edgekit(*command, folder=place)
        assert ran.code == 0, ran.err
    assert "warning" not in built(place / "app")
    return place / "app" / "build" / "bin" / "net-model"


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("detector"), "local")


def table_of(said: str) -> list[tuple[str, ...]]:
    rows = said[said.index("name ") :].splitlines()[1:]
    return [tuple(re.split(r"\s{2,}", row)) for row in rows]


def shown(meaning: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (one["name"], f"{one['score']:.3g}", *(f"{side:.1f}" for side in one["box"]))
        for one in meaning["found"]
    ]


@needs("cmake")
def test_a_photo_becomes_the_names_and_boxes_of_edgekit_run(detector: Path, tmp_path: Path) -> None:
    place = detector.parents[3]
    said = checked(
        (detector, "--once", "photo.jpg", "--out", tmp_path, "--draw", tmp_path / "seen.png"), place
    )
    ran = run_edgekit(
        *("run", "out", "--input", "photo.jpg", "-o", str(tmp_path / "own")),
        "--json",
        folder=place,
    )
    assert ran.code == 0, ran.err
    meaning = json.loads(ran.out)["samples"][0]["meaning"]
    assert len(meaning["found"]) > 1
    assert table_of(said) == shown(meaning)
    for number, name in enumerate(("boxes", "scores", "classes")):
        own = np.load(tmp_path / "own" / f"{name}.npy")
        np.testing.assert_array_equal(np.load(tmp_path / f"output-{number}.npy"), own)
    last = meaning["found"][-1]  # nothing is drawn over it
    seen = np.asarray(Image.open(tmp_path / "seen.png"))
    assert seen.shape == (201, 333, 3)
    left, _, right, bottom = last["box"]
    colour = seen[int(bottom) - 1, int(left + right) // 2]
    assert tuple(colour) == COLORS[last["index"] % len(COLORS)]


@needs("cmake")
def test_a_frame_becomes_boxes_too(detector: Path, tmp_path: Path) -> None:
    place = detector.parents[3]
    pixels = np.asarray(Image.open(place / "photo.ppm"))[:200, :332]
    (tmp_path / "frame.raw").write_bytes(pixels.tobytes())
    Image.fromarray(pixels).save(tmp_path / "same.bmp")
    framed = checked((detector, "--once", "frame.raw", "--frame", "rgb24:332x200"), tmp_path)
    assert table_of(framed) == table_of(checked((detector, "--once", "same.bmp"), tmp_path))
    refused = subprocess.run(
        (detector, "--once", "frame.raw"), cwd=tmp_path, capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert "is not .npy, and has 199200 bytes" in refused.stderr


@needs("cmake")
def test_the_service_answers_a_photo_with_what_it_found(detector: Path, tmp_path: Path) -> None:
    place = detector.parents[3]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes((place / "photo.jpg").read_bytes())
    (tmp_path / "in" / "bad.png").write_bytes(b"no picture")
    with subprocess.Popen((detector, "--watch", tmp_path), stdout=subprocess.DEVNULL) as service:
        try:
            answers = [tmp_path / "out" / name for name in ("a.jpg", "bad.png")]
            eventually(lambda: all(answer.is_dir() for answer in answers))
        finally:
            service.terminate()
    own = table_of(checked((detector, "--once", "photo.jpg"), place))
    assert table_of((answers[0] / "found.txt").read_text(encoding="utf-8")) == own
    assert "it is no PNG, JPEG" in (answers[1] / "error.txt").read_text()


CAMERA = """\
#include <dlfcn.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <string.h>
int ioctl(int file, unsigned long what, ...) {
  va_list rest;
  va_start(rest, what);
  void *with = va_arg(rest, void *);
  va_end(rest);
  (void)file;
  switch ((unsigned)what) {
    case (unsigned)VIDIOC_S_FMT: {
      struct v4l2_pix_format *pix = &((struct v4l2_format *)with)->fmt.pix;
      pix->pixelformat = V4L2_PIX_FMT_YUYV;
      pix->width = 64, pix->height = 48, pix->bytesperline = 160;
      return 0;
    }
    case (unsigned)VIDIOC_QUERYBUF:
      ((struct v4l2_buffer *)with)->length = 160 * 48;
      ((struct v4l2_buffer *)with)->m.offset = 4096;
      return 0;
    default: return 0;
  }
}
"""
"""A camera's driver that gives the bytes of the opened file from 4096 on, in rows of 160."""


@needs("cmake")
def test_a_camera_gives_a_frame(detector: Path, tmp_path: Path) -> None:
    """The calls are those of V4L2. A library answers them, for this machine has no camera."""
    shim = tmp_path / "camera.so"
    subprocess.run(
        ("gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", shim),
        input=CAMERA,
        text=True,
        check=True,
    )
    pixels = np.asarray(photo(24, 32)).repeat(2, 0).repeat(2, 1)
    packed = np.frombuffer(frame_of(pixels, "yuyv"), np.uint8).reshape(48, 128)
    rows = np.pad(packed, ((0, 0), (0, 32)))
    (tmp_path / "video0").write_bytes(bytes(4096) + rows.tobytes())
    (tmp_path / "frame.raw").write_bytes(packed.tobytes())

    seen = checked(("env", f"LD_PRELOAD={shim}", detector, "--once", "video0"), tmp_path)

    framed = checked((detector, "--once", "frame.raw", "--frame", "yuyv:64x48"), tmp_path)
    assert table_of(seen) == table_of(framed)


@pytest.mark.slow
@needs("cmake", "qemu-user", "g++-aarch64")
def test_on_64_bit_arm_it_finds_the_same(tmp_path: Path, detector: Path) -> None:
    place = detector.parents[3]
    program = exported(tmp_path / "arm", "rpi4")
    command = (arm_emulator(), "-L", "/usr/aarch64-linux-gnu", program, "--once")
    found = checked((*command, place / "photo.ppm"), tmp_path)
    assert table_of(found) == table_of(checked((detector, "--once", "photo.ppm"), place))
    refused = subprocess.run((*command, place / "photo.jpg"), capture_output=True, text=True)
    if refused.returncode:  # where no libjpeg for the board is installed
        assert "was built without libjpeg" in refused.stderr
