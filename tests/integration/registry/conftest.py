"""A registry, a small bundle, and a home of its own with one key, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for
from support.bundles import make_bundle
from support.onnx_models import onnx_model
from support.registry import RegistryServer, running_registry

import edgekit
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.registry import connection
from edgekit.registry.keys import new_key


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setattr(connection, "_PAUSE_SECONDS", 0.01)
    new_key("mine")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    with running_registry(tmp_path / "registry") as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path) -> edgekit.Workspace:
    return edgekit.Workspace(tmp_path)


WEIGHTS = {"weights": np.random.default_rng(5).standard_normal((256, 512)).astype(np.float32)}


def built(folder: Path, last: str) -> Bundle:
    folder.mkdir()
    nodes = [
        helper.make_node("MatMul", ["image", "weights"], ["product"]),
        helper.make_node(last, ["product"], ["features"]),
    ]
    onnx.save(onnx_model(nodes, {"image": [1, 256]}, ["features"], WEIGHTS), folder / "net.onnx")
    return build(request_for(folder / "net.onnx"), folder / "bundle", isolated=False).bundle


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Bundle]:
    folder = tmp_path_factory.mktemp("bundles")
    return built(folder / "1", "Relu"), built(folder / "2", "Tanh")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "bundle")
