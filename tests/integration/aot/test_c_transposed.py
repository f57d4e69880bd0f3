"""Transposed convolutions in C, which has loop nests for plain ones alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from support.c_builds import SANITIZED, built_tree, make
from support.onnx_models import onnx_model


@pytest.mark.parametrize("strides", [[1, 1], [2, 1]])
def test_a_dilated_transposed_convolution_gives_onnxruntimes_numbers(
    strides: list[int], tmp_path: Path
) -> None:
    weight = np.random.default_rng(0).standard_normal((3, 2, 3, 2)).astype("float32")
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=strides, dilations=[2, 3])
    model = onnx_model([node], {"x": (1, 3, 5, 4)}, ["y"], {"w": weight})

    built = built_tree(model, tmp_path / "c")
    tested = make(built.folder, "test", f"CFLAGS={' '.join(SANITIZED)}")

    assert tested.returncode == 0, tested.stdout + tested.stderr
