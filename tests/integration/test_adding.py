"""The pages for contributors: what each adds works after its files are put where the page says, and
no others. The page of a backend is tested in backends/test_contract_outside.py."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.building import CHECKOUT, Ran, run_edgekit, write_model
from support.needs import MICROCONTROLLERS, needs
from support.pages import files_of, put_files
from support.source import ROOT
from support.twins import twins_in

PAGES = sorted(path.name for path in (ROOT / "docs" / "adding").glob("*.md"))
DATA = ("boards", "edgekit", "libraries", "toolchains")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy without the files of any page."""
    copy = tmp_path / "checkout"
    for name in DATA:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def edgekit(*words: str, folder: Path, checkout: Path = CHECKOUT) -> Ran:
    ran = run_edgekit(*words, folder=folder, extra={"PYTHONPATH": str(checkout)})
    assert ran.code == 0, ran.err
    return ran


def deployed(*words: str, folder: Path, checkout: Path = CHECKOUT) -> Any:
    command = ("deploy", *words, "-o", "out", "--json")
    report = json.loads(edgekit(*command, folder=folder, checkout=checkout).out)
    assert report["verification"]["passed"] is True
    return report


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_linked_and_its_files_are_meant_for_this_place(page: str) -> None:
    assert f"docs/adding/{page}" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert files_of(page)
    for path, code in files_of(page).items():
        assert (ROOT / path).is_file() == code.startswith("@@")


@needs(*MICROCONTROLLERS)
def test_a_board_of_a_project_builds_and_its_twin_is_verified(work: Path, tmp_path: Path) -> None:
    assert put_files("board.md", work) == ["boards/mps2-an511.toml"]
    write_model(work / "model.onnx")

    edgekit("boards", "check", "boards/mps2-an511.toml", folder=work)
    with twins_in(tmp_path / "cache"):
        report = deployed("model.onnx", "--board", "mps2-an511", "--twin", folder=work)

    assert report["bench"]["counted"]["median"] > 0


@needs(*MICROCONTROLLERS)
def test_a_family_of_microcontrollers_is_one_c_file(
    checkout: Path, work: Path, tmp_path: Path
) -> None:
    put_files("microcontrollers.md", checkout)
    write_model(work / "model.onnx")

    with twins_in(tmp_path / "cache"):
        words = ("model.onnx", "--board", "lm3s6965evb", "--twin", "--no-bench")
        deployed(*words, folder=work, checkout=checkout)


def test_an_operator_is_a_function_and_a_row(checkout: Path, work: Path) -> None:
    node = helper.make_node("CDist", ["a", "b"], ["y"], domain="com.microsoft", metric="euclidean")
    graph = helper.make_graph(
        [node],
        "distances",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [5, 7]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [3, 7]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 3])],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), work / "d.onnx")
    before = run_edgekit("deploy", "d.onnx", "--board", "local", folder=work)
    assert before.code != 0
    assert "CDist" in before.err

    put_files("operator.md", checkout)

    deployed("d.onnx", "--board", "local", "--no-bench", folder=work, checkout=checkout)


READ = """
import json, sys
from pathlib import Path
from edgekit.devices.sensors.discovery import discover
from edgekit.devices.sensors.readings import observe
from edgekit.devices.sensors.snapshot import SCRIPT, local_snapshot
root = Path(sys.argv[1])
(sensor,) = discover(local_snapshot(root)).of("watts")
assert "/sys/class/power_supply/*/power_now" in SCRIPT
print(json.dumps([sensor.name, sensor.files, sensor.scale]))
"""


def test_a_sensor_is_a_row(checkout: Path, tmp_path: Path) -> None:
    """The board's own shell finds the file by the same row."""
    put_files("sensor.md", checkout)
    battery = tmp_path / "sys/class/power_supply/BAT0/power_now"
    battery.parent.mkdir(parents=True)
    battery.write_text("4250000\n")

    read = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)],
        env={"PYTHONPATH": str(checkout), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    name, (file,), scale = json.loads(read.stdout)
    assert name == "BAT0"
    assert float((tmp_path / file.lstrip("/")).read_text()) * scale == pytest.approx(4.25)


def test_a_verb_stands_in_the_help_and_runs(checkout: Path, work: Path) -> None:
    put_files("verb.md", checkout)
    write_model(work / "model.onnx")
    edgekit("build", "model.onnx", "--board", "local", "-o", "out", folder=work)

    told = edgekit("--help", folder=work, checkout=checkout).out
    shown = edgekit("size", "out", folder=work, checkout=checkout).out
    report = json.loads(edgekit("size", "out", "--json", folder=work, checkout=checkout).out)

    assert re.search(r"^ +size +Sum up the files of a bundle\.$", told, re.MULTILINE)
    assert "library" in shown
    sizes = {role["role"]: role["bytes"] for role in report["roles"]}
    assert sizes["library"] == (work / "out" / "model.so").stat().st_size


@needs(*MICROCONTROLLERS)
def test_a_generator_makes_the_steps_that_it_offers(
    checkout: Path, work: Path, tmp_path: Path
) -> None:
    put_files("generator.md", checkout)
    scale = np.float32(1 / 16)
    steps = {"scale": scale, "zero": np.int8(0), "out": np.float32(1 / 256), "low": np.int8(-128)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["stored"]),
        helper.make_node("DequantizeLinear", ["stored", "scale", "zero"], ["real"]),
        helper.make_node("Sigmoid", ["real"], ["bent"]),
        helper.make_node("QuantizeLinear", ["bent", "out", "low"], ["kept"]),
        helper.make_node("DequantizeLinear", ["kept", "out", "low"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "table",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in steps.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), work / "model.onnx")

    with twins_in(tmp_path / "cache"):
        words = ("model.onnx", "--board", "mps2-an386", "--twin", "--no-bench")
        deployed(*words, folder=work, checkout=checkout)

    code = "".join(path.read_text() for path in (work / "out").rglob("*.c"))
    assert "by a table, 4 values in a turn" in code
