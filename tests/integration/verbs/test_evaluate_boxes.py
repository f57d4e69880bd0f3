"""edgekit evaluate for detection, on a bundle that was built for real. COCO's tools judge it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from PIL import Image
from support.needs import needs
from support.onnx_models import onnx_model

import edgekit
from edgekit.base.errors import InputError

pytestmark = needs("pycocotools")

SIDE = 16
PROJECT = """
schema = 1
model = "boxes.onnx"

[preprocess.picture]
layout = "NCHW"
color = "gray"
resize = "pad"
scale = "1/255"
on = "board"

[postprocess]
task = "boxes"
decode = "corners"
outputs = ["boxes", "scores"]
labels = ["ant", "bee"]
score = 0.1
"""
FOUND = {"ant": [2.0, 4.0, 10.0, 12.0], "bee": [10.0, 5.0, 15.0, 9.0]}
"""What the detector finds in every picture: corners in its own picture of 16 pixels."""


def write_detector(path: Path) -> Path:
    """A detector that finds the same two boxes in every picture."""
    boxes = np.array([list(FOUND.values())], np.float32) / SIDE
    scores = np.array([[[0, 0.9, 0], [0, 0, 0.8]]], np.float32)
    nodes = [
        helper.make_node("Sub", ["picture", "picture"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["zero"], keepdims=0),
        helper.make_node("Add", ["all_boxes", "zero"], ["boxes"]),
        helper.make_node("Add", ["all_scores", "zero"], ["scores"]),
    ]
    weights = {"all_boxes": boxes, "all_scores": scores}
    shape = [1, 1, SIDE, SIDE]
    onnx.save(onnx_model(nodes, {"picture": shape}, ["boxes", "scores"], weights), path)
    return path


def in_image(name: str, width: int, height: int) -> list[float]:
    """Left, top, width and height in an image that was padded to a square in the middle."""
    factor = max(width, height) / SIDE
    shift = np.array([(max(width, height) - width) / 2, (max(width, height) - height) / 2] * 2)
    left, top, right, bottom = np.array(FOUND[name]) * factor - shift
    return [left, top, right - left, bottom - top]


def write_data(data: Path, boxes: list[tuple[int, str, list[float]]]) -> None:
    """Two pictures, of which the first is twice as wide as high."""
    (data / "images").mkdir(parents=True)
    Image.new("L", (32, 16)).save(data / "images" / "wide.png")
    Image.new("L", (16, 16)).save(data / "images" / "square.png")
    numbers = {"ant": 7, "bee": 3}
    document: dict[str, Any] = {
        "info": {"year": 2026},
        "images": [
            {"id": 1, "file_name": "wide.png", "width": 32, "height": 16},
            {"id": 2, "file_name": "square.png", "width": 16, "height": 16},
        ],
        "categories": [{"id": number, "name": name} for name, number in numbers.items()],
        "annotations": [
            {"id": place, "image_id": image, "category_id": numbers[name], "bbox": box}
            for place, (image, name, box) in enumerate(boxes, 1)
        ],
    }
    (data / "annotations.json").write_text(json.dumps(document))


def evaluated(folder: Path, **more: Any) -> edgekit.EvaluationReport:
    (folder / "edgekit.toml").write_text(PROJECT)
    model = write_detector(folder / "boxes.onnx")
    return edgekit.Workspace(folder).evaluate(
        model, folder / "data", "detection", board="local", **more
    )


def test_boxes_that_are_all_right_have_an_average_precision_of_one(tmp_path: Path) -> None:
    """Boxes lie where the picture was padded, and labels name categories in any order."""
    boxes = [
        (number, name, in_image(name, width, 16))
        for number, width in ((1, 32), (2, 16))
        for name in FOUND
    ]
    write_data(tmp_path / "data", boxes)
    report = evaluated(tmp_path, model=tmp_path / "boxes.onnx")

    assert report.value("map") == pytest.approx(1.0)
    assert report.value("agreement") == 1.0


def test_average_precision_is_that_of_coco(tmp_path: Path) -> None:
    """The first picture's ant is right, the second's lies elsewhere: recall ends at a half.

    51 of the 101 recalls that COCO looks at have the precision 1, and the others 0. The bee, whose
    box is shifted by a sixteenth, overlaps by 15/17, and so counts for 8 of the 10 thresholds.
    """
    left, top, width, height = in_image("bee", 16, 16)
    shifted = [left + width / 16, top, width, height]
    ant = in_image("ant", 32, 16)
    write_data(tmp_path / "data", [(1, "ant", ant), (2, "ant", [0, 0, 1, 1]), (2, "bee", shifted)])
    report = evaluated(tmp_path)

    # Of two bees with equal scores, the first picture's is wrong: the precision is a half.
    assert report.value("map50") == pytest.approx((51 / 101 + 0.5) / 2)
    assert report.value("map75") == pytest.approx((51 / 101 + 0.5) / 2)
    assert report.value("map") == pytest.approx((51 / 101 + 0.5 * 8 / 10) / 2)


def test_a_data_set_that_fits_no_model_is_refused(tmp_path: Path) -> None:
    write_data(tmp_path / "data", [(1, "ant", [0, 0, 1, 1])])
    path = tmp_path / "data" / "annotations.json"
    whole = json.loads(path.read_text())
    wrong = {
        "four numbers": {**whole, "annotations": [{**whole["annotations"][0], "bbox": [1, 2]}]},
        "unknown pictures": {**whole, "annotations": [{**whole["annotations"][0], "image_id": 9}]},
        "no file in": {**whole, "images": [{"id": 1, "file_name": "../../boxes.onnx"}]},
        "is a label of the model": {**whole, "categories": [{"id": 7, "name": "cat"}]},
        "no boxes as COCO writes them": {"images": []},
    }
    for message, document in wrong.items():
        path.write_text(json.dumps(document))
        with pytest.raises(InputError, match=message):
            evaluated(tmp_path)
