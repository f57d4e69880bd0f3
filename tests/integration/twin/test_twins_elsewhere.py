"""Emulated boards of other architectures: started, and given a model that is proven on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import helper
from support.needs import TWIN, needs
from support.onnx_models import onnx_model
from support.twins import edgekit, edgekit_json, share_images, twins_in

from edgekit.profiles.board import load_board
from edgekit.twin.recipe import default_recipe

pytestmark = [pytest.mark.slow, needs(*TWIN, "g++-armhf", "g++-riscv64", "qemu-riscv")]


@pytest.fixture(scope="module", params=["rpi2", "bpi-f3"])
def board(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("twins")
    share_images(folder, default_recipe(arch=load_board(request.param).cpu.arch))
    with twins_in(folder):
        yield request.param


def test_a_model_is_proven_on_the_twin_of_another_architecture(board: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx_model([helper.make_node("Softmax", ["x"], ["y"])], {"x": [4, 40]}, ["y"], {}), path
    )
    report = edgekit_json("deploy", str(path), "--board", board, "--twin", "--json")
    assert report["verification"]["passed"] is True
    assert report["bench"]["measured_by"] == "emulator"
    said = edgekit("twin", "ssh", board, "uname", "-m")
    assert said.stdout.strip() == load_board(board).cpu.arch
