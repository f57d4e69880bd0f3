"""Built models with regions as a program of one's own calls them: by many threads, beside each
other, and without memory. test_region_faults.py lists what else can go wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.examples import first_of
from support.needs import ARM_PROGRAMS, needs
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.region_calls import WHERE, BuiltRegion, another_model, built_region, call_region

from edgekit.devices.elf import read_elf

pytestmark = needs("ncnn", "onednn", "acl-rpi4", *ARM_PROGRAMS)

BACKENDS = tuple(WHERE)
THREADS = 64


def node(operator: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], name=f"/{output}", **attributes)


def small_network() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = {
        "w0": random.standard_normal((8, 3, 3, 3)) * 0.3,
        "w1": random.standard_normal((8, 8, 3, 3)) * 0.1,
        "dense": random.standard_normal((8, 10)),
    }
    nodes = [
        node("Conv", ["image", "w0"], "stem", pads=[1] * 4),
        node("Relu", ["stem"], "kept"),
        node("Conv", ["kept", "w1"], "deep", pads=[1] * 4),
        node("Add", ["deep", "kept"], "both"),
        node("GlobalAveragePool", ["both"], "pooled"),
        node("Flatten", ["pooled"], "flat"),
        node("MatMul", ["flat", "dense"], "scores"),
    ]
    floats = {name: value.astype("float32") for name, value in weights.items()}
    return onnx_model(nodes, {"image": [1, 3, 9, 10]}, ["scores"], floats)


def image() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 3, 9, 10)).astype("float32")


@pytest.fixture(
    scope="module",
    params=["ncnn", "onednn", pytest.param("acl", marks=pytest.mark.slow)],
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BuiltRegion:
    return built_region(request.param, small_network(), tmp_path_factory.mktemp(request.param))


def expected() -> np.ndarray:
    (scores,) = judged_by_onnxruntime(small_network(), {"image": image()})
    return scores


def test_64_threads_call_one_model_for_the_first_time_at_once(
    built: BuiltRegion, tmp_path: Path
) -> None:
    called = call_region(built, image(), tmp_path, threads=THREADS)

    assert called.problem == ""
    np.testing.assert_allclose(called.output, expected(), rtol=0, atol=2e-5)


def test_models_with_the_same_region_live_in_one_process(
    built: BuiltRegion, tmp_path: Path
) -> None:
    other = another_model(built, tmp_path / "other")

    called = call_region(built, image(), tmp_path, libraries=(built.library, other), threads=4)

    assert called.problem == ""
    np.testing.assert_allclose(called.output, expected(), rtol=0, atol=2e-5)


def test_a_model_needs_nothing_of_the_board_but_the_c_library(built: BuiltRegion) -> None:
    beside = {file.name for file in built.library.parent.iterdir()}
    loader = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
    c_library = {"libc.so.6", "libm.so.6", "libmvec.so.1", loader[built.board.cpu.arch]}
    compiler = {"libstdc++.so.6", "libgcc_s.so.1"}

    assert set(read_elf(built.library).libraries) <= {*beside, *c_library, *compiler}


def wide_network() -> onnx.ModelProto:
    """256 planes of a quarter of a million floats between its layers: 256 MiB."""
    weights = {"w": np.ones((256, 1, 1, 1), np.float32)}
    nodes = [
        node("Conv", ["image", "w"], "wide"),
        node("Tanh", ["wide"], "bent"),
        node("GlobalAveragePool", ["bent"], "pooled"),
    ]
    return onnx_model(nodes, {"image": [1, 1, 512, 512]}, ["pooled"], weights)


@pytest.mark.parametrize("backend", first_of(*BACKENDS))
def test_no_memory_inside_the_library_is_an_error_with_the_layers_name(
    backend: str, tmp_path: Path
) -> None:
    wide = built_region(backend, wide_network(), tmp_path / backend)

    called = call_region(wide, np.zeros((1, 1, 512, 512)), tmp_path, memory=160)

    assert wide.region.symbol in called.problem
    assert "no memory" in called.problem
    assert "/wide" in called.problem
