"""What people do with edgekit, from beginning to end, as they would type it.

The installed `edgekit` program does it all; the README tells the same stories.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from PIL import Image
from support.needs import needs
from support.tflite_models import Op, T, constant, tflite_bytes

EM_AARCH64 = 183
RANDOM = np.random.default_rng(8)

Edgekit = Callable[..., str]


@pytest.fixture
def edgekit(tmp_path: Path) -> Edgekit:
    """Type a command in an empty folder; gives what it prints. `code` is what it must end with,
    and then, where that is a failure, gives what it says about it."""
    program = Path(sys.executable).with_name("edgekit")
    home = {"HOME": str(tmp_path / "home"), "EDGEKIT_CACHE_DIR": str(tmp_path / "home/cache")}

    def type_in(line: str, code: int = 0) -> str:
        done = subprocess.run(
            [program, *line.split()],
            cwd=tmp_path,
            env={**os.environ, **home},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    return type_in


def photo_classifier(path: Path, batch: int | str = 1) -> None:
    """A convolution, ReLU, a pool and a softmax over five classes of a picture."""
    weights = {
        "kernel": RANDOM.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "dense": RANDOM.standard_normal((8, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["photo", "kernel"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "dense"], ["m"]),
        helper.make_node("Softmax", ["m"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "photos",
        [helper.make_tensor_value_info("photo", onnx.TensorProto.FLOAT, [batch, 3, 16, 16])],
        [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), path)


def machine_of(library: Path) -> int:
    """The processor that an ELF file is for."""
    (machine,) = struct.unpack_from("<H", library.read_bytes(), 18)
    return int(machine)


def scores_by_onnxruntime(model: Path, photo: np.ndarray) -> Any:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return session.run(None, {"photo": photo})[0]


def test_from_a_model_file_to_a_deployed_verified_and_measured_bundle(
    edgekit: Edgekit, tmp_path: Path
) -> None:
    photo_classifier(tmp_path / "photos.onnx")
    assert "can be built: yes" in edgekit("inspect photos.onnx")

    said = edgekit("deploy photos.onnx --board local")
    assert "photos is on local, verified" in said
    assert "verified against  onnxruntime" in said
    assert "median latency" in said

    # What came of it stands on its own: moved elsewhere, without the model, it is as good.
    shutil.move(tmp_path / "build/photos-local", tmp_path / "elsewhere")
    (tmp_path / "photos.onnx").unlink()
    verified = json.loads(edgekit("verify elsewhere --json"))
    assert verified["passed"] is True
    measured = json.loads(edgekit("bench elsewhere --runs 20 --json"))
    assert measured["runs"] == 20
    assert measured["median"] > 0

    # And it is what it was: a changed byte is noticed before anything runs.
    library = tmp_path / "elsewhere/model.so"
    library.write_bytes(library.read_bytes()[:-1] + b"?")
    assert "model.so" in edgekit("run elsewhere", code=3)


def test_a_project_with_photos_needs_no_arguments(edgekit: Edgekit, tmp_path: Path) -> None:
    photo_classifier(tmp_path / "photos.onnx")
    edgekit("init photos.onnx --board local")
    project = tmp_path / "edgekit.toml"
    proposed = project.read_text()
    own, _, _ = proposed.partition("[preprocess.photo]")
    assert "classifier" in own and own != proposed
    own += '[preprocess.photo]\nlayout = "NCHW"\nscale = "1/255"\nmean = 0.5\n'
    project.write_text(own)
    assert "verified" in edgekit("deploy")

    pixels = RANDOM.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    edgekit("run build/photos-local --input cat.png --out scores.npz")

    photo = (pixels / 255 - 0.5).transpose(2, 0, 1)[None].astype(np.float32)
    expected = scores_by_onnxruntime(tmp_path / "photos.onnx", photo)
    np.testing.assert_allclose(np.load(tmp_path / "scores.npz")["scores"], expected, atol=1e-5)


def test_a_quantised_tflite_model_is_compared_in_steps(edgekit: Edgekit, tmp_path: Path) -> None:
    x = T("x", (1, 6, 8, 4), "int8", scale=0.037, zero=-11)
    weights = constant("w", RANDOM.integers(-127, 128, (5, 3, 3, 4)).astype("int8"), scale=0.011)
    bias = constant("b", np.arange(5, dtype="int32") * 100, scale=0.011 * 0.037)
    result = T("y", (1, 6, 8, 5), "int8", scale=0.071, zero=5)
    settings = {"table": "Conv2DOptions", "padding": 0, "strideH": 1, "strideW": 1}
    operators = [Op("CONV_2D", ("x", "w", "b"), ("y",), settings)]
    (tmp_path / "sound.tflite").write_bytes(
        tflite_bytes([x, weights, bias, result], operators, ["x"], ["y"])
    )

    report = json.loads(edgekit("deploy sound.tflite -b local --json"))
    assert report["verification"]["passed"] is True
    assert report["verification"]["oracle"].startswith("LiteRT")
    (output,) = report["verification"]["outputs"]
    assert (output["unit"], output["max_error"]) == ("steps", 0)


@needs("g++-aarch64")
def test_a_bundle_for_a_raspberry_pi_is_made_here_and_is_code_for_it(
    edgekit: Edgekit, tmp_path: Path
) -> None:
    photo_classifier(tmp_path / "photos.onnx")
    edgekit("doctor --board rpi4")
    edgekit("build photos.onnx --board rpi4 -o pi --zip")

    assert machine_of(tmp_path / "pi/model.so") == EM_AARCH64
    assert (tmp_path / "pi.zip").is_file()
    assert json.loads((tmp_path / "pi/manifest.json").read_text())["board"]["name"] == "rpi4"
    if platform.machine() != "aarch64":
        said = edgekit("build photos.onnx --board rpi4 --toolchain host -o other", code=2)
        assert "leave --toolchain out" in said
        assert not (tmp_path / "other").exists()


def test_a_model_that_does_not_fit_is_refused_with_the_words_that_mend_it(
    edgekit: Edgekit, tmp_path: Path
) -> None:
    photo_classifier(tmp_path / "photos.onnx", "batch")
    assert "did you mean photos.onnx" in edgekit("inspect photo.onnx", code=3)

    said = edgekit("deploy photos.onnx -b local", code=3)
    assert "photo [batch,3,16,16]" in said
    option = said.split("for example: ")[1].strip()
    assert option == "--shape photo=1,3,16,16"
    assert "verified" in edgekit(f"deploy photos.onnx -b local {option}")

    whole = (tmp_path / "photos.onnx").read_bytes()
    (tmp_path / "photos.onnx").write_bytes(whole[: len(whole) // 2])
    assert "damaged" in edgekit("deploy photos.onnx -b local", code=3)
