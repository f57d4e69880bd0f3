"""edgekit inspect, and the project file that saves typing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.building import request_for, write_model
from support.profiles import machine_without_profiles
from support.tflite_models import Op, T, tflite_bytes

from edgekit.building.build import build
from edgekit.bundle.folder import write_manifest
from edgekit.bundle.manifest import Region
from edgekit.cli.program import run_command_line

Extents = list[int | str]


@pytest.fixture(autouse=True)
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return machine_without_profiles(monkeypatch, tmp_path)


def save(path: Path, batch: int | str = 1, operator: str = "Relu", domain: str = "") -> Path:
    """A convolution of 3 to 8 channels with 3 x 3 kernels, then an element-wise operator."""
    weights = np.ones((8, 3, 3, 3), np.float32)
    extents: Extents = [batch, 3, 16, 16]
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "w"], ["y"], "first", pads=[1, 1, 1, 1]),
            helper.make_node(operator, ["y"], ["z"], "second", domain=domain),
        ],
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, extents)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)] + [helper.make_opsetid(domain, 1)] * bool(domain)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def inspect(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0
) -> dict[str, Any]:
    ended = run_command_line(["inspect", *map(str, arguments), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ended == code, document
    return document


def test_a_buildable_model_is_described_with_its_cost(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = inspect(capsys, save(work / "net.onnx"))

    assert (found["name"], found["format"], found["buildable"]) == ("net", "onnx", True)
    assert found["inputs"] == [
        {"name": "image", "dtype": "float32", "shape": [1, 3, 16, 16], "quantization": None}
    ]
    assert found["outputs"][0]["shape"] == [1, 8, 16, 16]
    assert {entry["name"]: entry["count"] for entry in found["operators"]} == {
        "Conv": 1,
        "Relu": 1,
    }
    assert (found["parameters"], found["parameter_bytes"]) == (216, 864)
    assert found["cost"] == {
        "macs": 8 * 16 * 16 * 27,
        # What is computed channels last stands beside what is handed over channels first.
        "peak_activation_bytes": 4 * (8 + 8) * 16 * 16,
    }


def test_constants_are_parameters_and_no_operators(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.load(save(work / "net.onnx"))
    (weights,) = model.graph.initializer
    del model.graph.initializer[:]
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=weights))
    onnx.save(model, work / "net.onnx")

    found = inspect(capsys, work / "net.onnx")

    assert [entry["name"] for entry in found["operators"]] == ["Conv", "Relu"]
    assert (found["parameters"], found["parameter_bytes"]) == (216, 864)


def test_how_inputs_and_outputs_are_quantised_is_shown(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = [
        T("x", (1, 4), "int8", scale=0.5, zero=-3),
        T("y", (1, 4), "int8", scale=[0.25, 0.5, 1.0, 2.0], axis=1),
        T("plain", (1, 4)),
        T("plain_out", (1, 4)),
    ]
    operators = [Op("RESHAPE", ("x",), ("y",)), Op("ABS", ("plain",), ("plain_out",))]
    content = tflite_bytes(tensors, operators, ("x", "plain"), ("y", "plain_out"))
    (work / "net.tflite").write_bytes(content)

    assert run_command_line(["inspect", str(work / "net.tflite")]) == 0
    out = capsys.readouterr().out
    found = inspect(capsys, work / "net.tflite")

    rows = {line.split()[0]: line for line in out.splitlines() if "[1, 4]" in line}
    assert rows["x"].endswith("int8     [1, 4]  scale 0.5, zero point -3")
    assert rows["y"].endswith("[1, 4]  4 scales along axis 1")
    assert rows["plain"].endswith("float32  [1, 4]  -")
    assert found["inputs"][0]["quantization"] == {
        "scales": [0.5],
        "zero_points": [-3],
        "axis": None,
    }
    assert found["outputs"][0]["quantization"]["scales"] == [0.25, 0.5, 1.0, 2.0]
    assert found["inputs"][1]["quantization"] is None


def test_a_person_gets_the_same_as_text(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["inspect", str(save(work / "net.onnx"))]) == 0

    out = capsys.readouterr().out
    assert "multiply-accumulates  55.3 k" in out
    assert "peak activations      16 KiB" in out
    assert "parameters            216 (864 B)" in out
    assert "image  float32  [1, 3, 16, 16]" in out
    assert out.endswith("can be built: yes\n")


def test_an_open_shape_is_an_obstacle_until_it_is_given(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save(work / "net.onnx", batch="batch")

    found = inspect(capsys, model)
    assert found["buildable"] is False
    assert found["cost"] is None
    assert found["inputs"][0]["shape"] == ["batch", 3, 16, 16]
    assert "--shape" in found["obstacle"]["hint"]

    found = inspect(capsys, model, "--shape", "image=2,3,16,16")
    assert found["buildable"] is True
    assert found["inputs"][0]["shape"] == [2, 3, 16, 16]
    assert found["cost"]["macs"] == 2 * 8 * 16 * 16 * 27


def test_an_operator_that_nobody_knows_is_named_with_its_node(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save(work / "net.onnx", operator="Frobnicate", domain="com.example")

    found = inspect(capsys, model)

    assert found["buildable"] is False
    assert [(u["node"], u["count"]) for u in found["unsupported"]] == [("second", 1)]
    assert "Frobnicate" in found["unsupported"][0]["name"]
    assert "Frobnicate" in found["obstacle"]["message"]
    assert found["parameters"] == 216

    assert run_command_line(["inspect", str(model)]) == 0
    assert "can be built: no, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--shape", "imag=1,3,16,16"), 3),
        (("--shape", "image=1,3"), 3),
        (("--constant", "nothing=1"), 3),
        (("--shape", "image=1", "--shape", "image=1"), 2),
    ],
)
def test_an_option_that_does_not_fit_the_model_is_an_error(
    arguments: tuple[str, ...], code: int, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = inspect(capsys, save(work / "net.onnx", batch="batch"), *arguments, code=code)

    assert found["error"]["hint"]


@pytest.mark.parametrize("content", [None, b"", b"just text", b"\x08\x08\x12\x04"])
def test_a_file_that_is_no_model_is_an_error(
    content: bytes | None, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = work / "net.onnx"
    if content is not None:
        model.write_bytes(content)

    found = inspect(capsys, model, code=3)

    assert found["error"]["type"] == "ModelError"


def test_names_in_a_model_cannot_steer_the_terminal(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.load(save(work / "net.onnx"))
    model.graph.input[0].name = model.graph.node[0].input[0] = "\x1b]0;owned\x07"
    onnx.save(model, work / "net.onnx")

    run_command_line(["inspect", str(work / "net.onnx")])

    captured = capsys.readouterr()
    assert "owned" in captured.out
    assert "\x1b" not in captured.out + captured.err


def test_without_a_model_and_a_project_the_error_says_what_to_do(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = inspect(capsys, code=2)

    assert found["error"]["type"] == "UsageError"
    assert "name the model file" in found["error"]["hint"]
    assert "edgekit init" in found["error"]["hint"]


def test_with_a_project_file_no_model_has_to_be_named(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(work / "net.onnx", batch="batch")
    assert run_command_line(["init"]) == 0
    capsys.readouterr()
    project = work / "edgekit.toml"
    written = project.read_text()
    assert '# "image" = [1, 3, 16, 16]  # open: batch' in written

    project.write_text(written.replace('# "image" = [1', '"image" = [4'))
    below = work / "src"
    below.mkdir()
    monkeypatch.chdir(below)
    assert inspect(capsys)["inputs"][0]["shape"] == [4, 3, 16, 16]
    assert inspect(capsys, "--shape", "image=2,3,16,16")["inputs"][0]["shape"][0] == 2

    other = save(work / "other.onnx", batch="batch")
    assert inspect(capsys, other)["buildable"] is False  # the shapes are of the project's model


def test_init_names_the_model_it_is_given_relative_to_the_project(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "models").mkdir()
    save(work / "models" / 'odd "name".onnx')

    assert run_command_line(["init", 'models/odd "name".onnx', "--board", "rpi4", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["board"] == "rpi4"
    assert Path(document["model"]) == work / "models" / 'odd "name".onnx'
    assert 'model = "models/odd \\"name\\".onnx"' in (work / "edgekit.toml").read_text()


def test_init_does_not_overwrite(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "edgekit.toml").write_text("schema = 1\n")

    assert run_command_line(["init"]) == 2
    assert "--force" in capsys.readouterr().err
    assert run_command_line(["init", "--force"]) == 0


def test_a_mistake_in_the_project_file_is_shown_with_its_line(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "edgekit.toml").write_text('schema = 1\nmodle = "net.onnx"\n')

    found = inspect(capsys, code=3)

    assert "edgekit.toml:2: modle" in found["error"]["message"]
    assert "did you mean model?" in found["error"]["message"]


def test_a_bundle_is_shown_with_its_regions(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = build(
        request_for(write_model(work / "tiny.onnx")), work / "bundle", isolated=False
    ).bundle
    region = Region("edgekit_ncnn_1", "ncnn", ("nn.conv2d", "add"), 6912, 6912, "it pays")
    write_manifest(work / "bundle", replace(bundle.manifest, regions=(region,)))

    (shown,) = inspect(capsys, "bundle")["regions"]
    assert shown["name"] == "edgekit_ncnn_1"
    assert shown["reason"] == "it pays"

    assert run_command_line(["inspect", "bundle"]) == 0
    assert "ncnn 100 % of 6.91 k MACs in 1 region" in capsys.readouterr().out
    error = inspect(capsys, "bundle", "--shape", "image=1,3,8,8", code=2)["error"]
    assert "is a bundle, whose shapes" in error["message"]
