"""MediaPipe's custom operators of TFLite: they give what their kernels define."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from support.tflite_models import Op, T, constant, run_both, tflite_bytes, write_model

from edgekit.base.errors import EdgekitError
from edgekit.models.model import import_model, scan_model
from edgekit.models.oracle import oracle_for

RANDOM = np.random.default_rng(4)
LANDMARKS = 12


def crop_network(**more: Any) -> bytes:
    """Find a crop around landmarks, take its pixels, and move landmarks of it into the picture."""
    options: dict[str, Any] = {
        "subset_idxs": [1, 4, 5, 7, 2],
        "left_rotation_idx": 3,
        "right_rotation_idx": 8,
        "target_rotation_radians": 0.25,
        "output_height": 6,
        "output_width": 9,
        "scale_x": 1.5,
        "scale_y": 0.8,
    }
    options |= more
    size = {key: options[f"output_{key}"] for key in ("height", "width")}
    sampled = {f"output_{key}": extent for key, extent in size.items()}
    return tflite_bytes(
        [
            T("landmarks", (1, LANDMARKS, 3)),
            T("image", (1, 20, 24, 5)),
            T("small", (1, 4, 3)),
            T("matrix", (1, 4, 4)),
            T("crop", (1, size["height"], size["width"], 5)),
            T("doubled", (1, size["height"], size["width"], 5)),
            T("placed", (1, 4, 3)),
        ],
        [
            Op(
                "CUSTOM:Landmarks2TransformMatrix",
                ("landmarks",),
                ("matrix",),
                {"custom": bytes(flexbuffers.Dumps(options))},
            ),
            Op(
                "CUSTOM:TransformTensorBilinear",
                ("image", "matrix"),
                ("crop",),
                {"custom": bytes(flexbuffers.Dumps(sampled))},
            ),
            Op("ADD", ("crop", "crop"), ("doubled",), {"table": "AddOptions"}),
            Op("CUSTOM:TransformLandmarks", ("small", "matrix"), ("placed",)),
        ],
        ("landmarks", "image", "small"),
        ("matrix", "doubled", "placed"),
    )


@pytest.mark.parametrize("reach", [(4, 15), (0, 40)], ids=["inside", "half outside"])
def test_crops_around_landmarks_are_those_of_mediapipe(
    reach: tuple[int, int], tmp_path: Path
) -> None:
    source = write_model(tmp_path, crop_network())
    assert not scan_model(source).unsupported
    feeds = {
        "landmarks": RANDOM.uniform(*reach, (1, LANDMARKS, 3)).astype("float32"),
        "image": RANDOM.normal(0, 1, (1, 20, 24, 5)).astype("float32"),
        "small": RANDOM.uniform(0, 9, (1, 4, 3)).astype("float32"),
    }
    found, wanted = run_both(source, feeds)
    assert (wanted["doubled"] == 0).any() == (reach[1] == 40)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)


def test_a_crop_without_a_turn_is_known(tmp_path: Path) -> None:
    """Landmarks on a level line: the box from 2 to 10 and 4 to 12 becomes a crop of 4 by 4."""
    size = {"output_height": 4, "output_width": 4, "scale_x": 1.0, "scale_y": 1.0}
    source = write_model(tmp_path, crop_network(target_rotation_radians=0.0, **size))
    landmarks = np.zeros((1, LANDMARKS, 3), "float32")
    landmarks[0, :, :2] = 5.0
    landmarks[0, 1, :2], landmarks[0, 4, :2] = (2, 4), (10, 12)
    landmarks[0, 8, 0] = 9.0
    image = np.broadcast_to(np.arange(24, dtype="float32")[:, None], (1, 20, 24, 5)).copy()
    feeds = {"landmarks": landmarks, "image": image, "small": np.ones((1, 4, 3), "float32")}
    for results in (*run_both(source, feeds), oracle_for(source).run(feeds)):
        expected = [[2, 0, 0, 2], [0, 2, 0, 4], [0, 0, 1, 0], [0, 0, 0, 1]]
        np.testing.assert_allclose(results["matrix"][0], expected, atol=1e-5)
        # The middle of the first pixel lies a pixel of the picture from the box's edge.
        np.testing.assert_allclose(results["doubled"][0, 0, :, 0], [5, 9, 13, 17], atol=1e-4)
        np.testing.assert_allclose(results["placed"][0, 0], [4, 6, 1], atol=1e-5)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("strides", [(2, 2), (1, 3)])
def test_a_transposed_convolution_has_its_bias(
    same: bool, strides: tuple[int, int], tmp_path: Path
) -> None:
    kernel, image = (3, 2), (4, 5)
    extents = []
    for extent, size, stride in zip(image, kernel, strides, strict=True):
        cut = max(0, size - (extent - 1) % stride - 1) if same else 0
        extents.append(stride * (extent - 1) + size - cut)
    options = struct.pack("<iiii", 1 if same else 2, strides[1], strides[0], 0)
    weights = RANDOM.normal(0, 1, (6, *kernel, 3)).astype("float32")
    content = tflite_bytes(
        [
            T("x", (1, *image, 3)),
            constant("weights", weights),
            constant("bias", RANDOM.normal(0, 1, 6).astype("float32")),
            T("y", (1, *extents, 6)),
        ],
        [
            Op(
                "CUSTOM:Convolution2DTransposeBias",
                ("x", "weights", "bias"),
                ("y",),
                {"custom": options},
            )
        ],
        ("x",),
        ("y",),
    )
    feeds = {"x": RANDOM.normal(0, 1, (1, *image, 3)).astype("float32")}
    found, wanted = run_both(write_model(tmp_path, content), feeds)
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [({"right_rotation_idx": LANDMARKS}, "landmarks beyond 12"), ({"scale_x": 0.0}, "no sizes")],
)
def test_options_that_do_not_fit_are_refused(
    more: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    source = write_model(tmp_path, crop_network(**more))
    with pytest.raises(EdgekitError, match=complaint):
        import_model(source)


def test_options_of_the_first_version_are_refused_by_name(tmp_path: Path) -> None:
    old = crop_network().replace(b"subset_idxs", b"subset_idx_")
    with pytest.raises(EdgekitError, match="the older version is not read"):
        import_model(write_model(tmp_path, old))
