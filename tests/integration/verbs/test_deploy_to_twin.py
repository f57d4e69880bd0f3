"""A model on an emulated Raspberry Pi 4: compiled, sent over SSH, run by the agent, proven."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.building import write_model
from support.needs import TWIN, needs
from support.twins import edgekit, edgekit_json, twins_in

pytestmark = [pytest.mark.slow, needs(*TWIN)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, twin_cache: Path) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("pi")
    write_model(folder / "tiny.onnx")
    with twins_in(twin_cache), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOME", str(folder))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        yield folder


@pytest.fixture(scope="module")
def deployed(place: Path) -> dict[str, object]:
    report = edgekit_json("deploy", "tiny.onnx", "--board", "rpi4", "--twin", "-o", "bundle")
    assert isinstance(report, dict)
    return report


def test_deploy_proves_the_model_on_the_twin(deployed: dict[str, object]) -> None:
    text = json.dumps(deployed)
    verification = deployed["verification"]
    assert isinstance(verification, dict)
    assert verification["passed"] is True
    assert verification["device"] == "rpi4"
    assert "onnxruntime" in text
    bench = deployed["bench"]
    assert isinstance(bench, dict)
    assert bench["median"] > 0


def test_a_users_own_input_runs_on_the_twin_as_the_oracle_says(
    deployed: dict[str, object], place: Path
) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(place / "tiny.onnx"))
    (entry,) = session.get_inputs()
    values = np.random.default_rng(7).standard_normal(entry.shape).astype("float32")
    np.save(place / "mine.npy", values)
    edgekit_json("run", "bundle", "--twin", "--input", "mine.npy", "--out", "out")
    (file,) = (place / "out").rglob("*.npy")
    (expected,) = session.run(None, {entry.name: values})
    np.testing.assert_allclose(np.load(file), expected, rtol=1e-4, atol=1e-5)


def test_without_the_twin_the_error_names_both_ways_on(
    deployed: dict[str, object], place: Path
) -> None:
    ended = edgekit("bench", "bundle")
    assert ended.returncode == 8
    assert "edgekit device add" in ended.stderr
    assert "--twin" in ended.stderr
