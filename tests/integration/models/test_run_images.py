"""A photo goes into a model through the preprocessing that its project declares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from support.building import run_edgekit, write_model

PROJECT = """\
schema = 1
model = "model.onnx"
board = "local"
"""
DECLARATION = """
[preprocess.image]
layout = "NCHW"
color = "bgr"
resize = "crop"
scale = "1/255"
mean = [0.1, 0.2, 0.3]
std = 0.5
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    write_model(tmp_path / "model.onnx")
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path


def test_a_photo_becomes_what_the_project_declares(project: Path) -> None:
    (project / "edgekit.toml").write_text(PROJECT + DECLARATION)
    built = run_edgekit("build", "-o", "out", folder=project)

    done = run_edgekit("run", "out", "--input", "photo.png", "-o", "y.npz", folder=project)
    verified = run_edgekit(
        "verify", "out", "--input", "image=photo.png", "--model", "model.onnx", folder=project
    )

    assert (built.code, done.code, verified.code) == (0, 0, 0), built.err + done.err + verified.err
    pixels = np.asarray(Image.open(project / "photo.png"))[:, :, ::-1] / 255
    image = ((pixels - [0.1, 0.2, 0.3]) / 0.5).transpose(2, 0, 1)[None].astype(np.float32)
    session = onnxruntime.InferenceSession(str(project / "model.onnx"))
    (expected,) = session.run(None, {"image": image})
    np.testing.assert_allclose(np.load(project / "y.npz")["features"], expected, atol=1e-5)


def test_without_a_declaration_the_error_shows_lines_that_work_when_pasted(project: Path) -> None:
    (project / "edgekit.toml").write_text(PROJECT)
    assert run_edgekit("build", "-o", "out", folder=project).code == 0

    refused = run_edgekit("run", "out", "-i", "photo.png", folder=project)
    lines = refused.err[refused.err.index("[preprocess.image]") :]
    (project / "edgekit.toml").write_text(PROJECT + lines)
    rebuilt = run_edgekit("build", "-o", "out", folder=project)
    done = run_edgekit("run", "out", "-i", "photo.png", folder=project)

    assert refused.code == 3
    assert (rebuilt.code, done.code) == (0, 0), lines + rebuilt.err + done.err
