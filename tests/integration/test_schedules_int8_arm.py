"""int8 kernels for ARM boards, under QEMU: the numbers of LiteRT, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.emulated_arm import CPUS, build_and_run
from support.int8_layers import LAYERS, Case, layer
from support.tflite_models import write_model


@pytest.mark.parametrize("board", CPUS)
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: f"{case.kind}-{case.channels}")
def test_a_layer_on_an_arm_cpu_gives_the_numbers_of_litert(
    case: Case, board: str, tmp_path: Path
) -> None:
    bundle, found = build_and_run(write_model(tmp_path, layer(case)).path, board, tmp_path)

    (expected,) = bundle.reference_outputs().values()
    np.testing.assert_array_equal(found, expected)
    wanted = "depthwise" if case.kind == "depthwise" else "int8"
    assert wanted in [kernel.rule for kernel in bundle.manifest.kernels]
