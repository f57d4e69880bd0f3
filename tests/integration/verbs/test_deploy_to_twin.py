"""A model on an emulated Raspberry Pi 4: compiled, sent over SSH, run by the agent, proven."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.building import write_model
from support.needs import TWIN, needs
from support.twins import edgekit, edgekit_json, twins_in

from edgekit.twin.machine import status

pytestmark = [pytest.mark.slow, needs(*TWIN, "loadgen")]

TWIN_OF_PI = ("--board", "rpi4", "--twin")


def _said(*arguments: str) -> str:
    ended = edgekit(*arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, twin_cache: Path) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("pi")
    write_model(folder / "tiny.onnx")
    with twins_in(twin_cache), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOME", str(folder))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("EDGEKIT_STORE", f"sqlite:///{folder / 's.db'}")
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
    assert bench["measured_by"] == verification["measured_by"] == "emulator"


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


def test_every_command_tells_that_an_emulator_measured(
    deployed: dict[str, object], place: Path
) -> None:
    assert re.search(r"[0-9] [mnµ]?s emulated", _said("run", "bundle", "--twin"))
    said = _said("bench", "bundle", "--twin", "--runs", "10")
    assert re.search(r"measured by +an emulator: its times are not the board's", said)
    assert re.search(r"median +[0-9.]+ [mnµ]?s emulated", said)
    assert "emulated: the times say nothing about the board's" in said
    assert re.search(r"median latency +.* emulated", _said("deploy", "tiny.onnx", *TWIN_OF_PI))
    assert "emulated" in _said("versions", *TWIN_OF_PI)
    listed = edgekit_json("results", "list")["runs"]
    assert {run["measured_by"] for run in listed} == {"emulator"}
    assert " emulated" in _said("results", "show", "latest")
    assert edgekit("results", "compare", "previous").returncode == 0


def test_an_emulators_times_give_no_advice(deployed: dict[str, object], place: Path) -> None:
    measured = edgekit_json("recommend", "tiny.onnx", "--measure", *TWIN_OF_PI)
    (advice,) = measured["boards"]
    known = [option["known"] for option in advice["options"] if option["known"]]
    assert len(known) > 1
    assert {one["measured_by"] for one in known} == {"emulator"}
    assert "times as fast" not in json.dumps(advice)
    assert "--measure on the board itself decides" in advice["verdict"]


def test_a_matrix_tells_its_emulated_numbers(deployed: dict[str, object], place: Path) -> None:
    words = ("--boards", "local,rpi4", "--offload", "none", "--twin", "--seconds", "0.1")
    cells = edgekit_json("bench", "tiny.onnx", *words, "-o", "matrix")["cells"]
    assert [cell["measured_by"] for cell in cells] == ["hardware", "emulator"]
    page = (place / "matrix" / "matrix.html").read_text()
    assert page.count("<svg") == 2
    assert "The numbers of rpi4 are an emulator's" in (place / "matrix" / "matrix.md").read_text()


def test_accuracy_on_the_twin_is_the_boards_and_its_times_are_not(
    deployed: dict[str, object], place: Path
) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(place / "tiny.onnx"))
    (entry,) = session.get_inputs()
    random = np.random.default_rng(8)
    (place / "labelled").mkdir()
    inputs = random.standard_normal((8, *entry.shape)).astype("float32")
    labels = np.array([session.run(None, {entry.name: one})[0] for one in inputs])
    np.save(place / "labelled" / "inputs.npy", inputs)
    np.save(place / "labelled" / "labels.npy", labels)
    words = ("bundle", "--twin", "--data", "labelled", "--task", "regression")
    report = edgekit_json("evaluate", *words)
    assert report["measured_by"] == "emulator"
    assert report["metrics"][0]["value"] < 1e-4
    words = (*words, "--seconds", "0.1", "--queries", "2", "-o", "mlperf", "--scenario", "Offline")
    tested = edgekit_json("mlperf", *words)
    assert tested["measured_by"] == "emulator"
    logs = place / "mlperf" / "Offline" / "performance" / "run_1"
    assert {file.name.partition("_")[0] for file in logs.iterdir()} == {"emulated"}
    assert any("times are not the board's" in one for one in tested["obstacles"])


def test_the_layers_of_a_bundle_are_compared_on_the_twin(
    deployed: dict[str, object], place: Path
) -> None:
    report = edgekit_json("debug", "bundle", "--of", "tiny.onnx", "--twin")
    assert report["measured_by"] == "emulator"
    assert report["layers"]
    assert all(layer["compared"]["passed"] for layer in report["layers"])


def test_a_twin_that_is_reached_as_a_board_is_known_for_one(
    deployed: dict[str, object], place: Path
) -> None:
    """As another host's twin is: only the machine itself can tell."""
    access = status("rpi4").access
    address = f"{access.user}@{access.host}:{access.port}"
    digest = hashlib.sha256(base64.b64decode(access.host_key.split()[1])).digest()
    fingerprint = "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
    words = ("--board", "rpi4", "--key", str(access.key), "--fingerprint", fingerprint)
    edgekit_json("device", "add", "shelf", address, *words)
    try:
        report = edgekit_json("bench", "bundle", "--device", "shelf", "--runs", "3")
    finally:
        edgekit("device", "remove", "shelf")
    assert report["device"] == "shelf"
    assert report["measured_by"] == "emulator"


def test_without_the_twin_the_error_names_both_ways_on(
    deployed: dict[str, object], place: Path
) -> None:
    ended = edgekit("bench", "bundle")
    assert ended.returncode == 8
    assert "edgekit device add" in ended.stderr
    assert "--twin" in ended.stderr
