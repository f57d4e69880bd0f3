"""Detectors as torchvision and ultralytics export them, with nothing cut off, on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from support.onnx_models import judged_by_onnxruntime

import edgekit

RANDOM = np.random.default_rng(5)
CLASSES = 3
CONSTANTS: Mapping[str, np.ndarray] = {
    "zero": np.array(0.0, "f4"),
    "half": np.array(0.5, "f4"),
    "width": np.array(32.0, "f4"),
    "least": np.array([0.55], "f4"),
    "overlap": np.array([0.45], "f4"),
    "most": np.array([10]),
    "number": np.array([2]),
    "end": np.array([3]),
    "first": np.array([0]),
    "second": np.array([1]),
    "last": np.array([-1]),
    "pairs": np.array([2, 2]),
    "parts": np.array([4, CLASSES]),
    "flat": np.array([1, 4 + CLASSES, -1]),
    "classes": np.array(CLASSES),
    "ten": np.array([10]),
    "wide": np.array([1, 1, 4]),
    "wide3": np.array([1, 1, CLASSES]),
    "stem": RANDOM.normal(size=(8, 3, 3, 3)).astype("f4") / 3,
    "head": RANDOM.normal(size=(4 + CLASSES, 8, 1, 1)).astype("f4"),
    "dense": RANDOM.normal(size=(72, 5)).astype("f4") / 8,
}
NETWORK = """
    c = Conv <strides = [4, 4], pads = [1, 1, 1, 1]> (images, stem)  s = Sigmoid(c)  f = Mul(c, s)
    h = Conv(f, head)  r = Reshape(h, flat)  b, l = Split <axis = 1> (r, parts)
    scores = Sigmoid(l)  u = Sigmoid(b)  scaled = Mul(u, width)
    centers = Transpose <perm = [0, 2, 1]> (scaled)
"""
"""The last two lines give scores [1, class, box] and boxes [1, box, 4] as center and size."""
KEPT = """
    flatter = Squeeze(centers, first)  xy, wh = Split <axis = 1> (flatter, pairs)
    d = Mul(wh, half)  low = Sub(xy, d)  high = Add(xy, d)  corners = Concat <axis = 1> (low, high)
    best = ReduceMax <axes = [1]> (scores)  several = Unsqueeze(corners, first)
    kept = NonMaxSuppression(several, best, most, overlap, least)
    column = Slice(kept, number, end, second)  places = Squeeze(column, second)
    found = Gather(corners, places)
"""
"""`found` are the boxes [n, 4] that suppression keeps."""
DETECTORS: Mapping[str, tuple[str, str]] = {
    "ultralytics": (
        "float[n,4] boxes, int64[n] labels",
        """
    kept = NonMaxSuppression <center_point_box = 1> (centers, scores, most, overlap, least)
    two = Slice(kept, number, end, second)  places = Squeeze(two, second)
    flatter = Squeeze(centers, first)  boxes = Gather(flatter, places)
    one = Slice(kept, second, number, second)  labels = Squeeze(one, second)
""",
    ),
    "without suppression": (
        "float[1,10,4] boxes, float[1,10] best, int64[1,10] labels",
        """
    high = ReduceMax <axes = [1], keepdims = 0> (scores)  t, places = TopK(high, ten)
    column = Unsqueeze(places, last)  wider = Tile(column, wide)
    taken = GatherElements <axis = 1> (centers, wider)
    turned = Transpose <perm = [0, 2, 1]> (scores)
    for_each = Tile(column, wide3)
    each = GatherElements <axis = 1> (turned, for_each)  all = Flatten(each)
    best, i = TopK(all, ten)  labels = Mod(i, classes)  box = Div(i, classes)
    again = Unsqueeze(box, last)  widest = Tile(again, wide)
    boxes = GatherElements <axis = 1> (taken, widest)
""",
    ),
    "torchvision, whose list may be empty": (
        "float[n,4] boxes",
        KEPT
        + """
    size = Shape(places)  n = Squeeze(size, first)  none = Constant <value_int = 0> ()
    is_empty = Equal(n, none)
    boxes = If (is_empty) <
        then_branch = t () => (float[0,4] a) { a = Constant <value = float[0,4] {}> () },
        else_branch = e () => (float[m,4] z) { z = Mul(found, half) }
    >
""",
    ),
    "two stages": (
        "float[n,4] found, float[n,5] kinds",
        KEPT
        + """
    size = Shape(places)  pictures = ConstantOfShape <value = int64[1] {0}> (size)
    regions = RoiAlign <output_height = 3, output_width = 3, spatial_scale = 0.25>
        (f, found, pictures)
    row = Flatten(regions)  logits = MatMul(row, dense)  kinds = Softmax(logits)
""",
    ),
}


def detector(name: str) -> onnx.ModelProto:
    outputs, body = DETECTORS[name]
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> detector (float[1,3,32,32] images) => '
        f"({outputs}) {{ {NETWORK} {body} }}"
    )
    proto.graph.initializer.extend(
        numpy_helper.from_array(array, key) for key, array in CONSTANTS.items()
    )
    onnx.checker.check_model(proto)
    return proto


@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_is_deployed_with_its_end(name: str, tmp_path: Path) -> None:
    proto = detector(name)
    onnx.save(proto, tmp_path / "detector.onnx")
    ws = edgekit.Workspace(tmp_path)
    bundle = ws.build("detector.onnx", board="local")
    counts = set()

    with ws.device("local").open(bundle) as session:
        for scale in (0.02, 0.5, 1.0, 1.5):
            images = (RANDOM.normal(size=(1, 3, 32, 32)) * scale).astype("f4")
            found = session.run({"images": images})
            wanted = judged_by_onnxruntime(proto, {"images": images})
            for one, other in zip(found.values(), wanted, strict=True):
                assert one.shape == other.shape
                np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
            counts.add(wanted[0].shape)

    assert len(counts) > 1 or name == "without suppression", "every image has as many boxes"
    assert (0, 4) in counts or name == "without suppression", "every image has a box"
