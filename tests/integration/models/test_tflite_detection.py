"""SSD detectors of TFLite: the operator behind them gives what LiteRT's gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from support.tflite_models import Op, T, constant, run_both, tflite_bytes, write_model

from edgekit.base.errors import EdgekitError
from edgekit.models.ends.postprocess import Boxes
from edgekit.models.model import import_model, open_model, scan_model
from edgekit.models.oracle import oracle_for
from edgekit.project.file import choose_model, init_project

RANDOM = np.random.default_rng(3)
ANCHORS = 30
NAME = "CUSTOM:TFLite_Detection_PostProcess"


def detector(
    classes: int = 4, background: bool = True, dtype: str = "float32", **more: Any
) -> bytes:
    options = {
        "max_detections": 6,
        "max_classes_per_detection": 1,
        "detections_per_class": 5,
        "use_regular_nms": False,
        "nms_score_threshold": 0.3,
        "nms_iou_threshold": 0.4,
        "num_classes": classes,
        "y_scale": 10.0,
        "x_scale": 10.0,
        "h_scale": 5.0,
        "w_scale": 5.0,
    }
    options |= more
    size = options["max_detections"]
    size *= 1 if options["use_regular_nms"] else options["max_classes_per_detection"]
    centres = RANDOM.uniform(0.2, 0.8, (ANCHORS, 2))
    anchors = np.concatenate([centres, RANDOM.uniform(0.2, 0.5, (ANCHORS, 2))], 1)
    anchor_tensor = constant("anchors", anchors.astype("float32"))
    if dtype == "uint8":
        steps = np.rint(anchors * 250).astype("uint8")
        anchor_tensor = constant("anchors", steps, scale=1 / 250)
    stored: dict[str, Any] = {} if dtype == "float32" else {"scale": 0.05, "zero": 10}
    shares: dict[str, Any] = {} if dtype == "float32" else {"scale": 1 / 256}
    return tflite_bytes(
        [
            T("boxes", (1, ANCHORS, 4), dtype, **stored),
            T("classes", (1, ANCHORS, classes + background), dtype, **shares),
            anchor_tensor,
            T("places", (1, size, 4)),
            T("kinds", (1, size)),
            T("scores", (1, size)),
            T("count", (1,)),
        ],
        [
            Op(
                NAME,
                ("boxes", "classes", "anchors"),
                ("places", "kinds", "scores", "count"),
                {"custom": bytes(flexbuffers.Dumps(options))},
            )
        ],
        ("boxes", "classes"),
        ("places", "kinds", "scores", "count"),
    )


CASES: dict[str, dict[str, Any]] = {
    "together": {},
    "without a background": {"background": False},
    "two classes a box": {"max_classes_per_detection": 2},
    "one class": {"classes": 1},
    "each class apart": {"use_regular_nms": True},
    "few of a class": {"use_regular_nms": True, "detections_per_class": 1},
    "more than there are": {"max_detections": 40, "nms_score_threshold": 0.0},
    "bytes": {"dtype": "uint8"},
    "nothing is sure enough": {"nms_score_threshold": 0.999},
}


@pytest.mark.parametrize("name", CASES)
def test_boxes_are_those_of_litert(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    source = write_model(tmp_path, detector(**case))
    scan = scan_model(source)
    assert not scan.unsupported
    feeds = {}
    for spec in scan.inputs:
        if spec.dtype == "uint8":
            feeds[spec.name] = RANDOM.integers(0, 256, spec.shape).astype("uint8")
        elif spec.name == "boxes":
            feeds[spec.name] = RANDOM.normal(0, 1, spec.shape).astype("float32")
        else:
            feeds[spec.name] = RANDOM.uniform(0, 1, spec.shape).astype("float32") ** 2

    found, wanted = run_both(source, feeds)

    number = int(wanted["count"][0])
    assert (number > 2) == (name != "nothing is sure enough")
    np.testing.assert_array_equal(found["count"], wanted["count"])
    each = 2 if name == "two classes a box" else 1
    for one in ("places", "kinds", "scores"):
        assert found[one].shape == wanted[one].shape
        kept, expected = found[one][0, : number * each], wanted[one][0, : number * each]
        np.testing.assert_allclose(kept, expected, rtol=1e-5, atol=1e-6)
        assert not found[one][0, number * each :].any()


def write_network(path: Path) -> None:
    """A picture of 8 x 8 to boxes and classes."""
    options = dict.fromkeys(("y_scale", "x_scale", "h_scale", "w_scale"), 5.0)
    options |= {"max_detections": 6, "max_classes_per_detection": 1, "num_classes": 4}
    options |= {"nms_score_threshold": 0.01, "nms_iou_threshold": 0.5}
    anchors = RANDOM.uniform(0.2, 0.6, (ANCHORS, 4)).astype("float32")
    tensors = [
        T("image", (1, 8, 8, 3)),
        constant("flat", np.array([1, 192], "int32")),
        T("line", (1, 192)),
        constant("anchors", anchors),
        T("chances", (1, ANCHORS * 5)),
        *(T("places", (1, 6, 4)), T("kinds", (1, 6)), T("scores", (1, 6)), T("count", (1,))),
    ]
    fully = {"table": "FullyConnectedOptions"}
    operators = [Op("RESHAPE", ("image", "flat"), ("line",))]
    for name, columns in (("boxes", 4), ("classes", 5)):
        made = RANDOM.normal(0, 0.1, (ANCHORS * columns, 192)).astype("float32")
        tensors += [
            constant(f"{name} weights", made),
            constant(f"{name} bias", np.zeros(ANCHORS * columns, "float32")),
            constant(f"{name} shape", np.array([1, ANCHORS, columns], "int32")),
            T(f"{name} line", (1, ANCHORS * columns)),
            T(name, (1, ANCHORS, columns)),
        ]
        operands = ("line", f"{name} weights", f"{name} bias")
        operators.append(Op("FULLY_CONNECTED", operands, (f"{name} line",), fully))
        last = f"{name} line"
        if name == "classes":
            operators.append(Op("LOGISTIC", (last,), ("chances",)))
            last = "chances"
        operators.append(Op("RESHAPE", (last, f"{name} shape"), (name,)))
    results = ("places", "kinds", "scores", "count")
    custom = {"custom": bytes(flexbuffers.Dumps(options))}
    operators.append(Op(NAME, ("boxes", "classes", "anchors"), results, custom))
    path.write_bytes(tflite_bytes(tensors, operators, ("image",), results))


def test_a_detector_is_recognised_and_its_boxes_lie_in_the_picture(tmp_path: Path) -> None:
    write_network(tmp_path / "net.tflite")

    project = init_project(tmp_path, tmp_path / "net.tflite")

    section = project.ends.postprocess
    assert isinstance(section, Boxes) and section.decode == "ssd"
    pixels = RANDOM.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    plain = open_model(tmp_path / "net.tflite")
    raw = oracle_for(plain).run({"image": (pixels[None] / np.float32(127.5) - 1).astype("float32")})
    sure = raw["scores"][0][: int(raw["count"][0])]
    sure = sure[sure > section.score]
    assert len(sure) > 1
    source = choose_model(project, None, {}, {})
    for found in run_both(source, {"image": pixels}):
        np.testing.assert_allclose(found["scores"][: len(sure)], sure, rtol=1e-5)
        assert not found["scores"][len(sure) :].any()
        names = raw["kinds"][0][: len(sure)].astype(int)
        np.testing.assert_array_equal(found["classes"][: len(sure)], names)
        corners = np.clip(raw["places"][0][: len(sure)][:, [1, 0, 3, 2]] * 8, 0, 8)
        np.testing.assert_allclose(found["boxes"][: len(sure)], corners, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [({"num_classes": 9}, "5 columns of scores for 9 classes"), ({"y_scale": 0.0}, "no numbers")],
)
def test_options_that_do_not_fit_are_refused(
    more: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    source = write_model(tmp_path, detector(**more))
    with pytest.raises(EdgekitError, match=complaint):
        import_model(source)


def test_damaged_options_and_other_custom_operators_are_refused(tmp_path: Path) -> None:
    good = detector()
    damaged = good.replace(b"max_detections", b"min_detections")
    assert damaged != good
    with pytest.raises(EdgekitError, match="its options are damaged"):
        import_model(write_model(tmp_path, damaged))
    other = good.replace(b"TFLite_Detection_PostProcess", b"TFLite_Detection_PastProcess")
    (refused,) = scan_model(write_model(tmp_path, other)).unsupported
    assert "only in the program it was made for" in refused.reason
