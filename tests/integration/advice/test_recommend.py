"""edgekit recommend: which way to take: what libraries take, what fits, what was measured."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for, run_edgekit
from support.onnx_models import onnx_model
from support.stores import a_run

from edgekit.advice.options import _int8
from edgekit.base.events import SILENT
from edgekit.building.build import build
from edgekit.models.model import import_model, open_model
from edgekit.profiles.board import load_board
from edgekit.store.outbox import post
from edgekit.tuning.earlier_gain import EarlierGain, gain_of, kernel_calls


def write_network(folder: Path, *, channels: int = 16, odd: bool = False) -> Path:
    """A convolution and a classifier; the odd one has an operator that no library takes."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "d"], ["g"], name="dense"),
    ]
    if odd:
        nodes.append(helper.make_node("Erf", ["g"], ["y"], name="erf"))
    weights = {
        "w": random.standard_normal((channels, 3, 3, 3)).astype("float32"),
        "d": random.standard_normal((channels, 10)).astype("float32"),
    }
    path = folder / "net.onnx"
    onnx.save(onnx_model(nodes, {"x": [1, 3, 32, 32]}, ["y" if odd else "g"], weights), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_network(tmp_path)
    return tmp_path


def recommended(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    extra = {
        "EDGEKIT_STORE": f"sqlite:///{folder / 's.db'}",
        "XDG_DATA_HOME": str(folder / "data"),
    }
    ran = run_edgekit("recommend", "net.onnx", *arguments, "--json", folder=folder, extra=extra)
    assert ran.code == code, ran.err
    return dict(json.loads(ran.out))


def option(advice: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [option for option in advice["options"] if option["name"] == name]
    return dict(found)


def test_a_library_that_takes_everything_is_to_be_tried_first(folder: Path) -> None:
    (advice,) = recommended(folder, "--board", "rpi4")["boards"]
    first = advice["options"][0]
    assert first["name"] in ("ncnn", "acl")
    assert first["coverage"] == pytest.approx(1.0)
    assert first["command"] == f"edgekit deploy net.onnx --board rpi4 --offload {first['name']}"
    assert "--measure decides" in advice["verdict"]
    assert option(advice, "TVM alone")["supported"]
    assert "edgekit tune net.onnx --board rpi4" in option(advice, "tuned TVM")["command"]
    assert "edgekit quantize" in option(advice, "int8")["command"]


def test_what_was_measured_goes_before_what_is_promised(folder: Path) -> None:
    sha256 = open_model(folder / "net.onnx").sha256
    outbox = folder / "data" / "edgekit" / "outbox"
    build = replace(a_run().build, model="net", model_sha256=sha256)
    post(a_run(1, 0.004, build=replace(build, offload=(), digest="11" * 32)), outbox)
    post(a_run(2, 0.006, build=replace(build, digest="22" * 32)), outbox)
    post(a_run(3, 0.001, build=replace(build, model_sha256="00" * 32, digest="33" * 32)), outbox)
    (advice,) = recommended(folder, "--board", "rpi4")["boards"]
    assert [o["name"] for o in advice["options"][:2]] == ["TVM alone", "ncnn"]
    assert advice["options"][0]["known"]["median"] == 0.004
    assert advice["verdict"] == "TVM alone: measured 1.50 times as fast as ncnn"
    faster = option(advice, "ncnn")["answers"]["faster"]
    assert faster == "no: 0.667 times as fast as TVM alone, 6 ms on kitchen against 4 ms"


@pytest.mark.parametrize(
    ("measured_by", "unit", "shown"),
    [
        ("emulator", "instructions", "0 instructions emulated"),
        pytest.param("emulator", "seconds", "6 ms emulated", marks=pytest.mark.slow),
        pytest.param("simulator", "seconds", "6 ms simulated", marks=pytest.mark.slow),
        pytest.param(None, "seconds", "6 ms of unknown origin", marks=pytest.mark.slow),
    ],
)
def test_only_what_hardware_measured_ranks(
    folder: Path, measured_by: str | None, unit: str, shown: str
) -> None:
    sha256 = open_model(folder / "net.onnx").sha256
    outbox = folder / "data" / "edgekit" / "outbox"
    build = replace(a_run().build, model="net", model_sha256=sha256)
    own = a_run(1, 0.002, build=replace(build, offload=(), digest="11" * 32))
    library = a_run(2, 0.006, build=replace(build, digest="22" * 32))
    without = recommended(folder, "--board", "rpi4")["boards"][0]
    for run in (own, library):
        post(replace(run, measured_by=measured_by, unit=unit), outbox)
    (advice,) = recommended(folder, "--board", "rpi4")["boards"]
    assert [o["name"] for o in advice["options"]] == [o["name"] for o in without["options"]]
    assert "times as fast" not in json.dumps(advice)
    assert "--measure on the board itself decides" in advice["verdict"]
    assert option(advice, "ncnn")["known"]["measured_by"] == measured_by
    faster = option(advice, "ncnn")["answers"]["faster"]
    assert faster.startswith(f"not measured on hardware; {shown} on kitchen")

    post(replace(library, id="f" * 32), outbox)
    (advice,) = recommended(folder, "--board", "rpi4")["boards"]
    assert advice["verdict"].startswith("ncnn is what was measured")
    assert option(advice, "TVM alone")["known"] is None, "of another measurer"


def test_tuned_kernels_and_the_model_in_int8_are_options_of_their_own(folder: Path) -> None:
    sha256 = open_model(folder / "net.onnx").sha256
    outbox = folder / "data" / "edgekit" / "outbox"
    own = replace(a_run().build, model="net", model_sha256=sha256, offload=(), digest="11" * 32)
    small = replace(own, model="net-int8", model_sha256="44" * 32, digest="44" * 32)
    post(a_run(1, 0.004, build=own), outbox)
    tuned = replace(own, digest="22" * 32)
    post(a_run(2, 0.003, build=tuned, purpose="recommend tuned"), outbox)
    post(a_run(3, 0.002, build=small), outbox)
    (advice,) = recommended(folder, "--board", "rpi4")["boards"]
    first = [(o["name"], o["known"]["median"]) for o in advice["options"][:3]]
    assert first == [("int8", 0.002), ("tuned TVM", 0.003), ("TVM alone", 0.004)]
    assert "accuracy has to be measured" in advice["verdict"]


def test_what_searches_found_for_alike_kernels_is_known_of_a_model(folder: Path) -> None:
    model = import_model(open_model(folder / "net.onnx"), SILENT)
    target = load_board("rpi4").target
    calls = kernel_calls(model, target)
    assert calls, "a convolution and a classifier"
    key = next(iter(calls))
    known = {key: Timed(30.0, 10.0), "kernel-of-another-model": Timed(1.0, 1.0)}
    gain = gain_of(calls, known)
    assert gain == EarlierGain(len(calls), 1, 30.0 * calls[key], 10.0 * calls[key], ("kitchen",))
    assert gain_of(calls, {}) is None


@dataclass(frozen=True)
class Timed:
    own_us: float
    best_us: float
    device: str = "kitchen"


def test_people_get_the_questions_of_the_decision_tree_in_lines_that_fit(tmp_path: Path) -> None:
    write_network(tmp_path, odd=True)
    extra = {"EDGEKIT_STORE": "off", "XDG_DATA_HOME": str(tmp_path)}
    ran = run_edgekit("recommend", "net.onnx", "--board", "rpi4", folder=tmp_path, extra=extra)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert "hot spot: nn.conv2d, 99.9 % of the multiply-accumulates" in lines
    for question in ("supported?", "faster?", "hot spot?"):
        assert sum(line.startswith(f"  {question}") for line in lines) == 5
    assert any("erf: no backend has a rule for it" in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_times_of_different_devices_are_not_compared(folder: Path) -> None:
    (folder / "net.onnx").rename(folder / "older.onnx")
    sha256 = open_model(folder / "older.onnx").sha256
    (folder / "older.onnx").rename(folder / "net.onnx")
    outbox = folder / "data" / "edgekit" / "outbox"
    ncnn = replace(a_run().build, model="older", model_sha256=sha256, digest="22" * 32)
    none = replace(ncnn, offload=(), digest="11" * 32)
    post(a_run(1, 0.004, build=none, device="desk"), outbox)
    post(a_run(2, 0.006, build=ncnn, device="desk"), outbox)
    post(a_run(3, 0.001, build=ncnn, device="faster"), outbox)
    (advice,) = recommended(folder, "--board", "rpi4")["boards"]
    assert {o["known"]["device"] for o in advice["options"] if o["known"]} == {"desk"}
    assert advice["verdict"] == "TVM alone: measured 1.50 times as fast as ncnn"


def test_what_tries_an_option_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "my models"
    folder.mkdir()
    option = _int8(open_model(write_network(folder)), load_board("rpi4"))
    assert shlex.split(option.command)[:3] == ["edgekit", "quantize", str(folder / "net.onnx")]


def test_a_microcontroller_is_told_of_memory_and_of_int8(folder: Path) -> None:
    boards = recommended(folder, "--board", "nrf52840-dk", "--board", "mps3-an547")["boards"]
    for advice in boards:
        assert advice["fits"]
        cmsis = option(advice, "cmsis-nn")
        assert not cmsis["supported"]
        assert "floats" in cmsis["answers"]["supported"]
    write_network(folder, channels=20_000)
    (advice,) = recommended(folder, "--board", "nrf52840-dk")["boards"]
    assert not advice["fits"]
    assert not advice["fits_in_int8"]
    assert "too large, even in int8" in advice["verdict"]


def test_a_microcontroller_is_told_of_its_arena_and_cmsis_nn_comes_after_cheaper_kernels(
    tmp_path: Path,
) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("Add", ["d", "d"], ["y"]),
    ]
    constants = {"scale": np.array(0.5, np.float32), "zero": np.array(3, np.int8)}
    onnx.save(onnx_model(nodes, {"x": [1, 8]}, ["y"], constants), tmp_path / "net.onnx")
    (advice,) = recommended(tmp_path, "--board", "nrf52840-dk")["boards"]
    assert [o["name"] for o in advice["options"]] == ["edgekit's kernels", "cmsis-nn"]
    built = build(
        request_for(tmp_path / "net.onnx", "nrf52840-dk"), tmp_path / "b", isolated=False
    ).bundle
    assert built.manifest.bare_metal is not None
    assert f"about {built.manifest.bare_metal.arena_bytes:,} B of 256 KiB" in advice["memory"]
    assert all(o["supported"] for o in advice["options"])


@pytest.mark.slow
def test_measuring_decides_on_this_machine(folder: Path) -> None:
    (advice,) = recommended(folder, "--board", "local", "--measure")["boards"]
    measured = [o for o in advice["options"] if o["known"] is not None]
    assert option(advice, "TVM alone") in measured
    times = [o["known"]["median"] for o in measured]
    assert times == sorted(times)
    assert all(o["known"]["device"] == "local" for o in measured)
    assert option(advice, "int8")["supported"], "noise in its numbers says nothing against it"
    assert option(advice, "tuned TVM") not in measured, "nobody has tuned anything here"


def test_a_model_that_cant_be_built_gets_its_reason_and_no_advice(tmp_path: Path) -> None:
    node = helper.make_node("NonMaxSuppression", ["b", "s"], ["y"], name="nms")
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [1, 8, 4]),
            helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [1, 2, 8]),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    done = recommended(tmp_path)
    assert done["obstacle"]
    assert done["boards"] == []


def test_options_that_make_no_sense_together_are_refused(folder: Path) -> None:
    quick = ("--quick-tune", "5s")
    for arguments in (("--twin",), ("--measure",), ("--board", "rpi4", *quick)):
        ran = run_edgekit("recommend", "net.onnx", *arguments, folder=folder)
        assert ran.code == 2
        assert "hint:" in ran.err
