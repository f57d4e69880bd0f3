"""NVIDIA's own ONNX parser and builder on what edgekit writes, where TensorRT for RTX is installed.

The optional package tensorrt-rtx-cu13 builds engines without a GPU and can not run them. It is
another product than the TensorRT of a Jetson: what it takes says much about that one, and proves
nothing.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support import c_networks
from support.building import Ran
from support.examples import examples
from support.needs import needs, require
from support.offloaded import selection_for
from support.source import ROOT
from support.tensorrt_regions import engine_of, parsed, quantised_network

from benchmarks.networks import build
from edgekit.backends.offloading import partition_model
from edgekit.backends.tensorrt import BACKEND
from edgekit.backends.tensorrt.graph import onnx_of
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.models.model import import_model, open_model
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.testing.operators import FAMILIES, Case


@pytest.fixture(scope="module")
def nvidia() -> Any:
    require("tensorrt")
    return importlib.import_module("tensorrt_rtx")


def regions_of(
    whole: onnx.ModelProto, path: Path, precision: str = "fp32"
) -> list[onnx.ModelProto]:
    onnx.save(whole, path)
    selection = selection_for("tensorrt", precision=precision)
    found = partition_model(import_model(open_model(path)), selection)
    return [onnx_of(region, half=precision == "fp16") for region in found.regions]


@needs("tensorrt")
@pytest.mark.parametrize("name", ["MobileNetV2", "YOLOv8n", "ResNet-18"])
def test_a_network_becomes_an_engine(name: str, nvidia: Any, tmp_path: Path) -> None:
    (model,) = regions_of(build(name), tmp_path / "network.onnx")
    engine_of(nvidia, model)


@needs("tensorrt")
def test_a_quantised_network_becomes_an_engine(nvidia: Any, tmp_path: Path) -> None:
    (model,) = regions_of(quantised_network(), tmp_path / "network.onnx", "int8")
    engine_of(nvidia, model)


@needs("tensorrt")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_parser_takes_every_operator(family: str, nvidia: Any, tmp_path: Path) -> None:
    @settings(
        max_examples=examples(20),
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(case=FAMILIES[family]())
    def judged(case: Case) -> None:
        for model in regions_of(case.model(), tmp_path / "case.onnx"):
            assert not parsed(nvidia, model)[2]

    judged()


@pytest.fixture(scope="module")
def run_builder(nvidia: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ran]:
    """The runner's builder in a process of its own, with these libraries under the names that the
    headers' version has; they have to be those of TensorRT 11."""
    require("tensorrt-headers")
    said = os.environ["TENSORRT_INCLUDE"]
    folder = tmp_path_factory.mktemp("builder")
    libraries = Path(importlib.import_module("tensorrt_rtx_libs").__file__ or "").parent
    for name, theirs in (("nvinfer", "tensorrt_rtx"), ("nvonnxparser", "tensorrt_onnxparser_rtx")):
        (folder / f"lib{name}.so.11").symlink_to(libraries / f"lib{theirs}.so.1")
    program = folder / "build"
    compiler = find_cxx_compiler(load_toolchain(load_board("local").toolchain)).command
    own = (Path(BACKEND.include), Path(BACKEND.include).parent / "runner")
    include = (word for place in own for word in ("-I", str(place)))
    system = (word for place in said.split(os.pathsep) for word in ("-isystem", place))
    source = str(ROOT / "tests" / "support" / "tensorrt_build.cc")
    command = (*compiler, "-std=c++17", *include, *system, source, "-o", str(program), "-ldl")
    subprocess.run(command, check=True)
    known = os.environ.get("LD_LIBRARY_PATH", "")
    places = os.pathsep.join(filter(None, (str(folder), str(libraries), known)))

    def run(*words: str) -> Ran:
        extra = {"LD_LIBRARY_PATH": places, "EDGEKIT_TENSORRT_CACHE": str(folder / "cache")}
        done = subprocess.run(
            (str(program), *words), env={**os.environ, **extra}, capture_output=True, text=True
        )
        assert "this device has no" not in done.stdout, "the headers are not those of TensorRT 11"
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@needs("tensorrt", "tensorrt-headers")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_the_runner_builds_an_engine_and_takes_it_from_its_cache(
    precision: str, run_builder: Callable[..., Ran], tmp_path: Path
) -> None:
    (model,) = regions_of(c_networks.ds_cnn(), tmp_path / "network.onnx", precision)
    onnx.save(model, tmp_path / "region.onnx")

    first, second = (run_builder(str(tmp_path / "region.onnx"), precision) for _ in range(2))

    assert first.code == 0, first.out
    size, built = first.out.split()
    assert int(size) > 50_000
    assert built == "1"
    assert "builds the engine of region" in first.err
    assert re.search(r"builds the engine of region region: \w+", first.err)
    assert second.out.split() == [size, "0"]


@needs("tensorrt", "tensorrt-headers")
def test_the_runner_says_what_the_parser_has_against_a_model(
    run_builder: Callable[..., Ran], tmp_path: Path
) -> None:
    node = onnx.helper.make_node("NoSuchOperator", ["x"], ["y"], domain="of.nobody")
    value = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([node], "graph", value[:1], value[1:])
    sets = [onnx.helper.make_opsetid(*pair) for pair in (("", 17), ("of.nobody", 1))]
    onnx.save(onnx.helper.make_model(graph, opset_imports=sets), tmp_path / "strange.onnx")

    ran = run_builder(str(tmp_path / "strange.onnx"), "fp32")

    assert ran.code == 1
    assert "TensorRT could not read the region's ONNX" in ran.out
    assert "NoSuchOperator" in ran.out
    assert "[offload] never" in ran.out
