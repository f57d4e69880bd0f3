"""What stands before and behind a model: its operators, run by onnxruntime, give what other tools
give for the same picture and the same boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from support.building import run_edgekit
from support.onnx_models import judged_by_onnxruntime
from support.tflite_models import run_both

from edgekit.base.errors import ProjectError
from edgekit.models.ends import NO_ENDS, Ends
from edgekit.models.ends.postprocess import Boxes, Classes, Mask, Text
from edgekit.models.model import ModelSource, import_model, open_model, signature_of
from edgekit.models.onnx.ends.graphs import back_graph, front_graph
from edgekit.models.oracle import oracle_for
from edgekit.models.oracle_process import in_this_process
from edgekit.models.preprocess import Preprocess

RANDOM = np.random.default_rng(7)


def write(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, list[Any]]],
    outputs: Mapping[str, tuple[int, list[Any]]],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 13,
) -> Path:
    def declared(ends: Mapping[str, tuple[int, list[Any]]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in ends.items()]

    stored = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", declared(inputs), declared(outputs), stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def passing(path: Path, shape: list[Any], kind: int = TensorProto.FLOAT, opset: int = 13) -> Path:
    """A model that returns its input."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return write(path, [node], {"x": (kind, shape)}, {"y": (kind, shape)}, opset=opset)


def constant_outputs(
    path: Path, side: int, values: Mapping[str, np.ndarray], opset: int = 13
) -> Path:
    """A detector whose outputs do not depend on its picture."""
    nodes = [helper.make_node("Sub", ["image", "image"], ["zeros"])]
    nodes.append(helper.make_node("Reshape", ["zeros", "flat"], ["line"]))
    nodes.append(helper.make_node("Slice", ["line", "start", "stop"], ["zero"]))
    nodes += [helper.make_node("Add", [f"{name}.value", "zero"], [name]) for name in values]
    weights = {f"{name}.value": value.astype(np.float32) for name, value in values.items()}
    weights |= {"flat": np.array([-1]), "start": np.array([0]), "stop": np.array([1])}
    outputs = {name: (TensorProto.FLOAT, list(value.shape)) for name, value in values.items()}
    picture = {"image": (TensorProto.FLOAT, [1, 3, side, side])}
    return write(path, nodes, picture, outputs, weights, opset)


def run(
    path: Path, ends: Ends, feeds: Mapping[str, np.ndarray], **shapes: tuple[int, ...]
) -> dict[str, np.ndarray]:
    source = open_model(path, shapes, ends=ends)
    for graph in graphs(source):
        onnx.checker.check_model(graph)
    return oracle_for(source, in_this_process).run(feeds)


def graphs(source: ModelSource) -> list[onnx.ModelProto]:
    """The graphs before and behind a model."""
    own = signature_of(source)
    outputs = import_model(replace(source, ends=NO_ENDS, files=())).outputs
    found = front_graph(source.ends, own.inputs), back_graph(source.ends, own.inputs, outputs)
    return [one.model for one in found if one is not None]


def picture(height: int, width: int, channels: int = 3) -> np.ndarray:
    return RANDOM.integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pixels_are_normalised_as_declared(color: Any, layout: Any, tmp_path: Path) -> None:
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
    shape = [1, 3, 4, 5] if layout == "NCHW" else [1, 4, 5, 3]
    pixels = picture(4, 5)
    preprocess = Preprocess(layout, color, mean=mean, std=std, scale=1 / 255)

    found = run(passing(tmp_path / "m.onnx", shape), Ends({"x": preprocess}), {"x": pixels})

    ordered = pixels[:, :, ::-1] if color == "bgr" else pixels
    expected = (ordered / 255 - mean) / std
    expected = expected.transpose(2, 0, 1) if layout == "NCHW" else expected
    np.testing.assert_allclose(found["y"], expected[None], rtol=1e-5, atol=1e-6)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_a_program_resizes_as_pytorch_does(mode: Any, tmp_path: Path) -> None:
    import torch

    pixels = picture(30, 50)
    preprocess = Preprocess("NCHW", size=(30, 50), interpolation=mode)

    found = run(
        passing(tmp_path / "m.onnx", [1, 3, 20, 64]),
        Ends({"x": preprocess}),
        {"x": pixels},
    )

    image = torch.from_numpy(pixels.transpose(2, 0, 1)[None].astype(np.float32))
    named = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}[mode]
    corners = {} if mode == "nearest" else {"align_corners": False}
    expected = torch.nn.functional.interpolate(image, (20, 64), mode=named, **corners)
    np.testing.assert_allclose(found["y"], expected.clamp(0, 255).numpy(), atol=2e-3)


def test_a_letterbox_has_its_border_and_a_crop_its_middle(tmp_path: Path) -> None:
    pixels = np.full((10, 20, 3), 200, np.uint8)
    pixels[:, 5:15] = 40
    model = passing(tmp_path / "m.onnx", [1, 3, 20, 20])

    for anchor, rows in (("center", slice(5, 15)), ("start", slice(0, 10))):
        padded = Preprocess("NCHW", resize="pad", size=(10, 20), fill=114, anchor=anchor)  # type: ignore[arg-type]
        found = run(model, Ends({"x": padded}), {"x": pixels})["y"][0]
        inside = np.zeros((20, 20), bool)
        inside[rows] = True
        assert (found[:, ~inside] == 114).all()
        np.testing.assert_array_equal(found[:, rows], pixels.transpose(2, 0, 1))
    cropped = Preprocess("NCHW", resize="crop", size=(10, 20))
    assert (run(model, Ends({"x": cropped}), {"x": pixels})["y"] == 40).all()


def test_quantised_half_and_grey_inputs_get_their_own_type(tmp_path: Path) -> None:
    grey = picture(4, 4, 1)
    node = helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["y"])
    weights = {"scale": np.array(0.02, np.float32), "zero": np.array(-3, np.int8)}
    ends = Ends({"x": Preprocess("NHWC", "gray", scale=1 / 255)})
    quantised = write(
        tmp_path / "q.onnx",
        [node],
        {"x": (TensorProto.INT8, [1, 4, 4, 1])},
        {"y": (TensorProto.FLOAT, [1, 4, 4, 1])},
        weights,
    )
    halves = passing(tmp_path / "h.onnx", [1, 4, 4, 1], TensorProto.FLOAT16)

    assert np.abs(run(quantised, ends, {"x": grey})["y"][0] - grey / 255).max() <= 0.0101
    assert run(halves, ends, {"x": grey})["y"].dtype == np.float16
    bytes_ = passing(tmp_path / "b.onnx", [4, 4, 1], TensorProto.UINT8)
    (plain,) = graphs(open_model(bytes_, ends=Ends({"x": Preprocess("NHWC", "gray")})))
    assert not {node.op_type for node in plain.graph.node} & {"Cast", "Mul", "QuantizeLinear"}


def test_an_input_that_a_subgraph_reads_becomes_a_picture(tmp_path: Path) -> None:
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["inner"])],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1, 3, 2, 2])],
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["yes"], to=TensorProto.BOOL),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
    ]
    floats = (TensorProto.FLOAT, [1, 3, 2, 2])
    path = write(tmp_path / "m.onnx", nodes, {"x": floats}, {"y": floats})
    pixels = picture(2, 2)

    found = run(path, Ends({"x": Preprocess("NCHW")}), {"x": pixels})

    np.testing.assert_array_equal(found["y"][0], -pixels.transpose(2, 0, 1).astype(np.float32))


def test_classes_are_the_best_of_a_softmax(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["scores"])
    ends_of = {"x": (TensorProto.FLOAT, ["N", 10])}, {"scores": (TensorProto.FLOAT, ["N", 10])}
    path = write(tmp_path / "m.onnx", [node], *ends_of)
    logits = RANDOM.normal(size=(1, 10)).astype(np.float32) * 3

    found = run(path, Ends({}, Classes("classes", top=3)), {"x": logits}, x=(1, 10))

    shares = np.exp(np.maximum(logits[0], 0))
    shares /= shares.sum()
    order = np.argsort(-shares, kind="stable")[:3]
    np.testing.assert_allclose(found["scores"], shares[order], rtol=1e-5)
    assert shares[found["classes"]] == pytest.approx(shares[order])


def best_by_onnxruntime(
    corners: np.ndarray, scores: np.ndarray, iou: float, least: float, most: int
) -> list[tuple[int, int]]:
    """Class and candidate of each box that ONNX's own operator keeps, the best first."""
    weights = [
        numpy_helper.from_array(value, name)
        for name, value in {
            "boxes": corners[None].astype(np.float32),
            "scores": scores.T[None].astype(np.float32),
            "most": np.array(len(corners)),
            "iou": np.array(iou, np.float32),
            "least": np.array(least, np.float32),
        }.items()
    ]
    names = [tensor.name for tensor in weights]
    output = helper.make_tensor_value_info("kept", TensorProto.INT64, None)
    node = helper.make_node("NonMaxSuppression", names, ["kept"])
    graph = helper.make_graph([node], "g", [], [output], weights)
    opsets = [helper.make_opsetid("", 13)]
    (kept,) = judged_by_onnxruntime(
        helper.make_model(graph, opset_imports=opsets, ir_version=8), {}
    )
    pairs = [(int(name), int(row)) for _, name, row in kept]
    return sorted(pairs, key=lambda pair: -scores[pair[1], pair[0]])[:most]


def candidates(seed: int, count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes in groups, each with one class that is likely, so that many overlap."""
    random = np.random.default_rng(seed)
    centres = random.uniform(40, 280, (count // 12, 2))[random.integers(0, count // 12, count)]
    rows = np.concatenate(
        [centres + random.normal(0, 8, (count, 2)), random.uniform(30, 80, (count, 2))], 1
    )
    scores = np.zeros((count, classes))
    scores[np.arange(count), random.integers(0, classes, count)] = random.permutation(
        np.linspace(0.05, 0.95, count)
    )
    return rows.astype(np.float32), scores.astype(np.float32)


def corners_of(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows[:, :2] - rows[:, 2:] / 2, rows[:, :2] + rows[:, 2:] / 2], 1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("decode", ["yolov8", "yolov5", "corners"])
def test_boxes_are_those_that_nonmaxsuppression_keeps(
    decode: Any, seed: int, tmp_path: Path
) -> None:
    rows, scores = candidates(seed, 240, 3)
    if decode == "yolov8":
        outputs = {"output0": np.concatenate([rows, scores], 1).T[None]}
    elif decode == "yolov5":
        outputs = {"output0": np.concatenate([rows, np.ones((240, 1)), scores], 1)[None]}
    else:
        background = np.zeros((240, 1), np.float32)
        outputs = {
            "scores": np.concatenate([background, scores], 1)[None],
            "boxes": corners_of(rows)[None] / 320,
        }
    path = constant_outputs(tmp_path / "m.onnx", 320, outputs)
    names = ("boxes", "scores") if decode == "corners" else ()
    section = Boxes("boxes", decode, outputs=names, score=0.3, most=40)
    ends = Ends({"image": Preprocess("NCHW")}, section)

    found = run(path, ends, {"image": picture(320, 320)})

    kept = best_by_onnxruntime(corners_of(rows), scores, 0.45, 0.3, 40)
    assert len(kept) > 10
    assert found["classes"][: len(kept)].tolist() == [name for name, _ in kept]
    expected = np.clip(corners_of(rows)[[row for _, row in kept]], 0, 320)
    np.testing.assert_allclose(found["boxes"][: len(kept)], expected, atol=1e-3)
    np.testing.assert_allclose(
        found["scores"][: len(kept)], [scores[row, name] for name, row in kept], rtol=1e-6
    )
    for name in ("boxes", "scores", "classes"):
        assert not found[name][len(kept) :].any()


def test_masks_of_yolov5_are_those_of_yolov8(tmp_path: Path) -> None:
    """YOLOv5 has a row for each box, and a column for whether there is any."""
    side, parts = 64, 32
    random = np.random.default_rng(6)
    rows = np.array([[20, 20, 24, 16], [44, 40, 30, 40]], np.float32)
    scores = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    shares = random.normal(size=(2, parts)).astype(np.float32)
    prototypes = random.normal(size=(1, parts, side // 4, side // 4)).astype(np.float32)
    certain = np.array([[0.5], [1.0]], np.float32)
    forms = {
        "yolov5": np.concatenate([rows, certain, scores, shares], 1)[None],
        "yolov8": np.concatenate([rows, certain * scores, shares], 1).T[None],
    }
    found = {}
    for decode, columns in forms.items():
        outputs = {"output0": columns, "output1": prototypes}
        path = constant_outputs(tmp_path / f"{decode}.onnx", side, outputs)
        ends = Ends({"image": Preprocess("NCHW")}, Boxes("boxes", decode, most=2))  # type: ignore[arg-type]
        found[decode] = run(path, ends, {"image": picture(side, side)})

    assert found["yolov5"]["masks"].any()
    np.testing.assert_allclose(found["yolov5"]["scores"], [0.8, 0.45], rtol=1e-6)
    for name, expected in found["yolov8"].items():
        np.testing.assert_array_equal(found["yolov5"][name], expected)


def test_masks_and_points_of_boxes_are_those_of_the_published_description(tmp_path: Path) -> None:
    """The outputs of YOLOv8-seg and YOLOv8-pose: prototypes times coefficients, cut off at the box,
    and three columns for each point."""
    side, parts, points = 64, 32, 3
    random = np.random.default_rng(5)
    rows = np.array([[20, 20, 24, 16], [44, 40, 30, 40], [21, 20, 24, 16]], np.float32)
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.1]], np.float32)
    marks = random.uniform(0, side, (3, points, 3)).astype(np.float32)
    shares = random.normal(size=(3, parts)).astype(np.float32)
    prototypes = random.normal(size=(1, parts, side // 4, side // 4)).astype(np.float32)
    columns = np.concatenate([rows, scores, marks.reshape(3, -1), shares], 1)
    outputs = {"output0": columns.T[None], "output1": prototypes}
    path = constant_outputs(tmp_path / "m.onnx", side, outputs)
    section = Boxes("boxes", "yolov8", most=3, keypoints=points)

    def check(found: Mapping[str, np.ndarray]) -> None:
        assert found["classes"].tolist() == [0, 1, 0]
        np.testing.assert_allclose(found["scores"], [0.9, 0.8, 0])  # the third overlaps the first
        assert found["masks"].dtype == np.uint8 and found["masks"].shape == (3, 16, 16)
        for row, (x1, y1, x2, y2) in enumerate(corners_of(rows[:2]) / 4):
            sigmoid = 1 / (1 + np.exp(-np.tensordot(shares[row], prototypes[0], 1)))
            expected = sigmoid > 0.5
            for y in range(16):
                for x in range(16):
                    expected[y, x] &= x1 <= x < x2 and y1 <= y < y2
            assert expected.any()
            np.testing.assert_array_equal(found["masks"][row], expected)
            expected = marks[row, :, :2].reshape(-1)
            np.testing.assert_allclose(found["landmarks"][row], expected, rtol=1e-5)
        assert not found["masks"][2].any() and not found["landmarks"][2].any()

    source = open_model(path, ends=Ends({"image": Preprocess("NCHW")}, section))

    for found in run_both(source, {"image": picture(side, side)}):
        check(found)


def test_a_chain_of_overlapping_boxes_is_followed_to_its_end(tmp_path: Path) -> None:
    """Each box overlaps the next: every second one stays."""
    count = 24
    rows = np.stack([np.arange(count) * 10.0 + 20, np.full(count, 50.0)], 1)
    rows = np.concatenate([rows, np.full((count, 2), 30.0)], 1)
    scores = np.linspace(0.9, 0.5, count)[:, None]
    outputs = {"output0": np.concatenate([rows, scores], 1).T[None]}
    path = constant_outputs(tmp_path / "m.onnx", 320, outputs)

    found = run(
        path,
        Ends({"image": Preprocess("NCHW")}, Boxes("boxes", "yolov8", iou=0.4)),
        {"image": picture(320, 320)},
    )

    kept = best_by_onnxruntime(corners_of(rows), scores, 0.4, 0.25, count)
    assert np.count_nonzero(found["scores"]) == len(kept) == count // 2


def test_boxes_of_a_letterbox_lie_in_the_picture_of_the_program(tmp_path: Path) -> None:
    rows = np.array([[160.0, 160.0, 80.0, 40.0, 0.9]]).T[None]
    path = constant_outputs(tmp_path / "m.onnx", 320, {"output0": rows})
    preprocess = Preprocess("NCHW", resize="pad", size=(120, 160))

    found = run(
        path, Ends({"image": preprocess}, Boxes("boxes", "yolov8")), {"image": picture(120, 160)}
    )

    np.testing.assert_allclose(found["boxes"], [[60, 50, 100, 70]], atol=1e-4)


def test_end2end_boxes_are_taken_as_the_model_dropped_them(tmp_path: Path) -> None:
    rows = np.array([[[1, 2, 30, 40, 0.9, 2], [1, 2, 30, 40, 0.8, 2], [5, 5, 6, 6, 0.1, 1]]])
    path = constant_outputs(tmp_path / "m.onnx", 64, {"output0": rows})

    found = run(
        path,
        Ends({"image": Preprocess("NCHW")}, Boxes("boxes", "end2end")),
        {"image": picture(64, 64)},
    )

    np.testing.assert_allclose(found["scores"], [0.9, 0.8, 0])
    assert found["classes"].tolist() == [2, 2, 0]


def test_faces_are_decoded_as_the_authors_of_retinaface_do(tmp_path: Path) -> None:
    side = 64
    priors = [
        ((column + 0.5) * step / side, (row + 0.5) * step / side, size / side, size / side)
        for step, sizes in ((8, (16, 32)), (16, (64, 128)), (32, (256, 512)))
        for row in range(side // step)
        for column in range(side // step)
        for size in sizes
    ]
    anchors = np.array(priors)
    count = len(anchors)
    offsets, marks = RANDOM.normal(0, 1, (count, 4)), RANDOM.normal(0, 1, (count, 10))
    logits = np.stack([np.full(count, 3.0), RANDOM.permutation(np.linspace(-4, 5, count))], 1)
    outputs = {"conf": logits[None], "landms": marks[None], "loc": offsets[None]}
    path = constant_outputs(tmp_path / "m.onnx", side, outputs)
    section = Boxes("boxes", "retinaface", softmax=True, score=0.5, iou=1.0)

    found = run(path, Ends({"image": Preprocess("NCHW")}, section), {"image": picture(side, side)})

    shares = np.exp(logits[:, 1]) / np.exp(logits).sum(1)
    best = [row for row in np.argsort(-shares) if shares[row] > 0.5]
    centres = anchors[:, :2] + offsets[:, :2] * 0.1 * anchors[:, 2:]
    sizes = anchors[:, 2:] * np.exp(offsets[:, 2:] * 0.2)
    corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], 1) * side
    points = anchors[:, None, :2] + marks.reshape(-1, 5, 2) * 0.1 * anchors[:, None, 2:]
    assert len(best) > 10
    expected = np.clip(corners[best], 0, side)
    np.testing.assert_allclose(found["boxes"][: len(best)], expected, atol=1e-3)
    expected = np.clip(points[best].reshape(-1, 10) * side, 0, side)
    np.testing.assert_allclose(found["landmarks"][: len(best)], expected, atol=1e-3)


def test_a_mask_and_text_are_the_best_classes(tmp_path: Path) -> None:
    scores = RANDOM.normal(size=(1, 5, 6, 7)).astype(np.float32)
    model = passing(tmp_path / "m.onnx", [1, 5, 6, 7])
    mask = run(model, Ends({}, Mask("mask")), {"x": scores})["mask"]
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask, scores[0].argmax(0))
    one = passing(tmp_path / "1.onnx", [1, 6, 7, 1])
    section = Mask("mask", layout="NHWC", threshold=0.25)
    alone = run(one, Ends({}, section), {"x": scores[:, 0, :, :, None]})["mask"]
    np.testing.assert_array_equal(alone, scores[0, 0] > 0.25)
    steps = passing(tmp_path / "t.onnx", [7, 1, 5])
    lines = scores[0, :, 0].T[:, None].copy()
    read = run(steps, Ends({}, Text("text", ("a", "b", "c", "d"))), {"x": lines})
    np.testing.assert_array_equal(read["classes"], lines[:, 0].argmax(1))
    np.testing.assert_array_equal(read["scores"], lines[:, 0].max(1))


FLOATS = [1, 3, 8, 8]


@pytest.mark.parametrize(
    ("shape", "ends", "says"),
    [
        (FLOATS, Ends({"z": Preprocess("NCHW")}), "'z', which is no input"),
        (FLOATS, Ends({"x": Preprocess("NHWC")}), "takes no rgb image in NHWC"),
        (FLOATS, Ends({}, Classes("classes")), "needs a vector"),
        ([1, 4], Ends({}, Classes("classes", ("a",) * 5)), "has 4 classes to name"),
        ([1, 4], Ends({}, Classes("classes", output="zz")), "names the output 'zz'"),
        ([1, 8, 9], Ends({}, Boxes("boxes", "yolov8")), "need to know the picture"),
        (FLOATS, Ends({"x": Preprocess("NCHW")}, Boxes("boxes", "yolov8")), "takes a matrix"),
        (FLOATS, Ends({"x": Preprocess("NCHW")}, Boxes("boxes", "corners")), "no outputs"),
        ([1, 4], Ends({}, Text("text", ("a",))), "a score for each step"),
        ([2, 4], Ends({}, Text("text", ("a",))), "has 3 classes to name"),
        ([4], Ends({}, Mask("mask")), "a score for each class and pixel"),
    ],
)
def test_ends_that_do_not_fit_are_refused(
    shape: list[int], ends: Ends, says: str, tmp_path: Path
) -> None:
    source = open_model(passing(tmp_path / "m.onnx", shape), ends=ends)

    with pytest.raises(ProjectError, match=says) as caught:
        import_model(source)

    assert caught.value.hint


def test_importer_and_oracle_see_the_same_program(tmp_path: Path) -> None:
    rows, scores = candidates(1, 120, 3)
    outputs = {"output0": np.concatenate([rows, scores], 1).T[None]}
    path = constant_outputs(tmp_path / "m.onnx", 32, outputs)
    preprocess = Preprocess("NCHW", resize="crop", size=(40, 60), scale=1 / 255)
    source = open_model(path, ends=Ends({"image": preprocess}, Boxes("boxes", "yolov8", most=9)))

    model = import_model(source)
    found = oracle_for(source).run({"image": picture(40, 60)})

    assert [(spec.dtype, spec.shape) for spec in model.inputs] == [("uint8", (40, 60, 3))]
    assert {spec.name: (spec.dtype, spec.shape) for spec in model.outputs} == {
        name: (value.dtype.name, value.shape) for name, value in found.items()
    }


PROJECT = """\
schema = 1
model = "detector.onnx"
board = "local"
[preprocess.image]
layout = "NCHW"
resize = "pad"
size = [60, 80]
scale = "1/255"
[postprocess]
task = "boxes"
decode = "yolov8"
labels = "names.txt"
"""


def test_a_picture_becomes_names_and_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The detector's only box is where the picture is bright: it tells the sum of the picture."""
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    rows = np.array([[16.0, 16.0, 16.0, 8.0, 0.1, 0.9]]).T[None]
    constant_outputs(tmp_path / "detector.onnx", 32, {"output0": rows})
    (tmp_path / "edgekit.toml").write_text(PROJECT)
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    Image.fromarray(np.zeros((120, 160, 3), np.uint8)).save(tmp_path / "photo.jpg")

    built = run_edgekit("build", "-o", "out", folder=tmp_path)
    assert built.code == 0, built.err
    done = run_edgekit("run", "out", "--input", "photo.jpg", "--draw", "found.png", folder=tmp_path)

    assert done.code == 0, done.err
    (line,) = [line.split() for line in done.out.splitlines() if line.startswith("dog")]
    # The middle of the picture, 16 of 32 wide and 8 of 24 high (the letterbox is 24 of 32).
    assert line == ["dog", "0.9", "40.0", "40.0", "120.0", "80.0"]
    drawn = np.asarray(Image.open(tmp_path / "found.png"))
    assert drawn.shape == (120, 160, 3)
    assert drawn[80, 40:121].any(axis=1).all() and drawn[45:80, 120].any(axis=1).all()
    assert not drawn[90:].any()
    asked = run_edgekit("run", "out", "--input", "photo.jpg", "--json", folder=tmp_path)
    assert '"name": "dog"' in asked.out
    refused = run_edgekit("run", "out", "--draw", "x.png", folder=tmp_path)
    assert refused.code == 2 and "no image to draw into" in refused.err
    verified = run_edgekit("verify", "out", "--input", "photo.jpg", folder=tmp_path)
    assert verified.code == 0, verified.err


def test_quantising_prepares_the_models_own_input(tmp_path: Path) -> None:
    """A project whose program takes pictures calibrates with pictures, and the result has none."""
    weights = {"w": RANDOM.normal(size=(4, 3, 3, 3)).astype(np.float32)}
    node = helper.make_node("Conv", ["image", "w"], ["y"])
    ends = {"image": (TensorProto.FLOAT, FLOATS)}, {"y": (TensorProto.FLOAT, [1, 4, 6, 6])}
    write(tmp_path / "m.onnx", [node], *ends, weights)
    (tmp_path / "edgekit.toml").write_text(
        'schema = 1\nmodel = "m.onnx"\n[preprocess.image]\nlayout = "NCHW"\nsize = [9, 9]\n'
    )
    pixels = np.kron(picture(3, 3), np.ones((3, 3, 1), np.uint8))
    Image.fromarray(pixels).save(tmp_path / "a.png")

    done = run_edgekit("quantize", "--calibrate", "a.png", "--accept-noise", folder=tmp_path)

    assert done.code == 0, done.err
    (entry,) = onnx.load(tmp_path / "m-int8.onnx").graph.input
    assert [d.dim_value for d in entry.type.tensor_type.shape.dim] == FLOATS
