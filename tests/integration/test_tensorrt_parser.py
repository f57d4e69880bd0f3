"""NVIDIA's own ONNX parser and builder on what edgekit writes, where TensorRT for RTX is installed.

The optional package tensorrt-rtx-cu13 builds engines without a GPU and can not run them. It is
another product than the TensorRT of a Jetson: what it takes says much about that one, and proves
nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.ncnn_cases import FAMILIES, Case
from support.region_lab import selection_for

from benchmarks.networks import build
from edgekit.backends.tensorrt.graph import onnx_of
from edgekit.model import import_model, open_model
from edgekit.pipeline import partition_model


@pytest.fixture(scope="module")
def nvidia() -> Any:
    return pytest.importorskip("tensorrt_rtx", reason="the package tensorrt-rtx-cu13 is not here")


def parsed(nvidia: Any, model: onnx.ModelProto) -> tuple[Any, Any, list[str]]:
    """The builder, its network, and what the parser has against the model."""
    builder = nvidia.Builder(nvidia.Logger(nvidia.Logger.ERROR))
    network = builder.create_network(0)
    parser = nvidia.OnnxParser(network, nvidia.Logger(nvidia.Logger.ERROR))
    parser.parse(model.SerializeToString())
    problems = [str(parser.get_error(place).desc()) for place in range(parser.num_errors)]
    return builder, network, problems


def regions_of(whole: onnx.ModelProto, path: Path) -> list[onnx.ModelProto]:
    onnx.save(whole, path)
    found = partition_model(import_model(open_model(path)), selection_for("tensorrt"))
    return [onnx_of(region) for region in found.regions]


@pytest.mark.parametrize("name", ["MobileNetV2", "YOLOv8n", "ResNet-18"])
def test_a_network_becomes_an_engine(name: str, nvidia: Any, tmp_path: Path) -> None:
    (model,) = regions_of(build(name), tmp_path / "network.onnx")

    builder, network, problems = parsed(nvidia, model)

    assert not problems
    config = builder.create_builder_config()
    plan = builder.build_serialized_network(network, config)
    assert plan is not None
    assert plan.nbytes > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parser_takes_every_operator(family: str, nvidia: Any, tmp_path: Path) -> None:
    @settings(
        max_examples=20,
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
