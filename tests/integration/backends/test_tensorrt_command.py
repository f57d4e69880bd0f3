"""What a user sees of the backend `tensorrt` on a machine without anything of NVIDIA's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.building import Ran, run_edgekit
from support.offloading import named_network


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TENSORRT_INCLUDE", raising=False)
    named_network(tmp_path / "net.onnx")
    return tmp_path


def run(folder: Path, command: str, *options: str, board: str = "jetson-orin") -> Ran:
    store = {"EDGEKIT_STORE": f"sqlite:///{folder / 'store.db'}"}
    return run_edgekit(command, "net.onnx", "--board", board, *options, folder=folder, extra=store)


def test_a_model_is_partitioned_without_headers(folder: Path) -> None:
    ran = run(folder, "partition", "--offload", "tensorrt", "--json")

    assert ran.code == 0, ran.err
    report: Any = json.loads(ran.out)
    assert {decision["backend"] for decision in report["decisions"]} == {"tensorrt"}
    assert len(report["regions"]) == 1


def test_tensorrt_is_recommended_for_a_jetson_without_headers(folder: Path) -> None:
    ran = run(folder, "recommend", "--json")

    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out)["boards"]
    options = {option["name"]: option for option in found["options"]}
    assert options["tensorrt"]["supported"]
    for name in ("tensorrt", "ncnn"):
        assert not any("TENSORRT_INCLUDE" in reason for reason in options[name]["reasons"])


def test_a_build_without_headers_leaves_the_compiling_to_the_device(folder: Path) -> None:
    ran = run(folder, "build", "--offload", "tensorrt", "--out", "out")

    assert ran.code == 0, ran.err
    (runner,) = json.loads((folder / "out" / "manifest.json").read_text())["runners"]
    assert runner["built"] == "device"
    assert (folder / "out" / runner["source"]).is_file()


def test_headers_that_are_named_and_not_all_there_are_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORRT_INCLUDE", str(folder))

    ran = run(folder, "build", "--offload", "tensorrt", "--out", "out")

    assert ran.code == 5
    assert "what speaks to TensorRT on jetson-orin can't be compiled on this machine" in ran.err
    assert "no NvInfer.h" in ran.err
    assert not (folder / "out").exists()


def test_a_project_sets_its_options_and_hears_of_wrong_ones(folder: Path) -> None:
    project = folder / "edgekit.toml"
    project.write_text('schema = 1\nmodel = "net.onnx"\n[offload.tensorrt]\nprecision = "fp17"\n')

    ran = run(folder, "partition", "--offload", "tensorrt")

    assert ran.code == 3
    assert "precision" in ran.err
    assert "fp16" in ran.err


def test_a_board_without_a_gpu_of_nvidias_can_not_have_it(folder: Path) -> None:
    ran = run(folder, "partition", "--offload", "tensorrt", board="rpi4")

    assert ran.code != 0
    assert "rpi4 can't offload to tensorrt" in ran.err
