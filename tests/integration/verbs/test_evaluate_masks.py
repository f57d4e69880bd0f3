"""edgekit evaluate for segmentation, on bundles that were built for real."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from PIL import Image
from support.onnx_models import onnx_model

import edgekit
from edgekit.base.errors import InputError

RANDOM = np.random.default_rng(31)
SIDE = 8
ON_THE_BOARD = """
[postprocess]
task = "mask"
"""


def project(side: str, resize: str = "stretch") -> str:
    return f"""
schema = 1
model = "seg.onnx"

[preprocess.picture]
layout = "NCHW"
color = "gray"
resize = "{resize}"
scale = "1/255"
on = "{side}"
"""


def write_segmenter(path: Path) -> Path:
    """Three classes of each pixel, from its neighbours."""
    kernels = RANDOM.normal(0, 1, (3, 1, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["picture", "kernels"], ["scores"], pads=[1, 1, 1, 1])
    shape = [1, 1, SIDE, SIDE]
    onnx.save(onnx_model([node], {"picture": shape}, ["scores"], {"kernels": kernels}), path)
    return path


def found_by_onnxruntime(model: Path, picture: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(model))
    taken = (picture / 255.0).astype(np.float32)[None, None]
    return np.asarray(session.run(None, {"picture": taken})[0][0].argmax(0))


def noisy(classes: np.ndarray) -> np.ndarray:
    """A mask that is wrong about some pixels, and ignores a row."""
    mask = np.where(
        RANDOM.random(classes.shape) < 0.3, RANDOM.integers(0, 3, classes.shape), classes
    )
    mask[0] = 255
    return mask.astype(np.uint8)


def mean_iou(labels: np.ndarray, found: np.ndarray) -> float:
    """The definition, over all pixels that count."""
    labels, found = labels[(counts := labels != 255)], found[counts]
    return float(
        np.mean(
            [
                ((labels == k) & (found == k)).sum() / ((labels == k) | (found == k)).sum()
                for k in np.union1d(labels, found)
            ]
        )
    )


@pytest.mark.parametrize("ends", [project("host"), project("board") + ON_THE_BOARD])
def test_mean_iou_is_that_of_its_definition(tmp_path: Path, ends: str) -> None:
    (tmp_path / "edgekit.toml").write_text(ends)
    model = write_segmenter(tmp_path / "seg.onnx")
    for name in ("images", "masks"):
        (tmp_path / "data" / name).mkdir(parents=True)
    masks, found = [], []
    for place in range(4):
        pixels = RANDOM.integers(0, 256, (SIDE, SIDE)).astype(np.uint8)
        classes = found_by_onnxruntime(model, pixels)
        mask = noisy(classes)
        Image.fromarray(pixels).save(tmp_path / "data" / "images" / f"{place}.png")
        Image.fromarray(mask).save(tmp_path / "data" / "masks" / f"{place}.png")
        masks.append(mask)
        found.append(classes)
    report = edgekit.Workspace(tmp_path).evaluate(
        model, tmp_path / "data", "segmentation", board="local", model=model
    )

    labels, guesses = np.array(masks), np.array(found)
    assert report.value("miou") == pytest.approx(mean_iou(labels, guesses))
    right = (labels == guesses)[labels != 255].mean()
    assert report.value("pixels") == pytest.approx(right) and 0.5 < right < 1
    assert report.value("agreement") == 1.0


@pytest.mark.parametrize("resize", ["pad", "crop"])
def test_a_mask_is_placed_as_its_picture_is(tmp_path: Path, resize: str) -> None:
    """A mask of a picture twice as wide as the model's counts where the model saw it."""
    (tmp_path / "edgekit.toml").write_text(project("host", resize))
    model = write_segmenter(tmp_path / "seg.onnx")
    for name in ("images", "masks"):
        (tmp_path / "data" / name).mkdir(parents=True)
    seen = np.zeros((SIDE, SIDE), np.uint8)
    pixels = np.zeros((SIDE, 2 * SIDE), np.uint8)
    mask = np.full((SIDE, 2 * SIDE), 7, np.uint8)
    if resize == "crop":
        seen = RANDOM.integers(0, 256, (SIDE, SIDE)).astype(np.uint8)
        pixels[:, 4:12], mask[:, 4:12] = seen, found_by_onnxruntime(model, seen)
    else:
        pixels[:], seen[2:6] = 255, 255
        mask = found_by_onnxruntime(model, seen)[2:6].repeat(2, 0).repeat(2, 1).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "data" / "images" / "wide.png")
    Image.fromarray(mask).save(tmp_path / "data" / "masks" / "wide.png")
    report = edgekit.Workspace(tmp_path).evaluate(
        model, tmp_path / "data", "segmentation", board="local"
    )

    assert report.value("miou") == 1.0


def test_pictures_without_masks_and_masks_in_color_are_refused(tmp_path: Path) -> None:
    (tmp_path / "edgekit.toml").write_text(project("host"))
    model = write_segmenter(tmp_path / "seg.onnx")
    data = tmp_path / "data"
    for name in ("images", "masks"):
        (data / name).mkdir(parents=True)
    Image.new("L", (SIDE, SIDE)).save(data / "images" / "a.png")
    ws = edgekit.Workspace(tmp_path)

    with pytest.raises(InputError, match=r"no mask for a\.png"):
        ws.evaluate(model, data, "segmentation", board="local")
    Image.new("RGB", (SIDE, SIDE)).save(data / "masks" / "a.png")
    with pytest.raises(InputError, match="picture in color"):
        ws.evaluate(model, data, "segmentation", board="local")
