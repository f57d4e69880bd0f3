"""Layers of quantised models in ACL's integers, on an emulated ARM CPU, against LiteRT's reference
kernels, and those of ONNX models against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.acl_arm import arm_machine, offloaded
from support.needs import ARM_PROGRAMS, needs
from support.onnx_models import judged_by_onnxruntime
from support.quantised_cases import Quantised, layers
from support.quantised_onnx import (
    QuantisedOnnx,
    layers_in_integers,
    onnx_layers,
    quantised_depthwise,
)
from support.tflite_models import write_model

from edgekit.models.model import import_model, open_model
from edgekit.models.oracle import oracle_for

pytestmark = needs("acl-rpi4", *ARM_PROGRAMS)


def judge(count: int, folder: Path, **options: object) -> int:
    """How many of the cases ran in ACL."""
    arm_machine()
    taken = []

    @settings(
        max_examples=count,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=layers())
    def judged(case: Quantised) -> None:
        source = write_model(folder, case.content)
        values = case.values()
        result = offloaded(import_model(source), [values], **options)
        (expected,) = oracle_for(source).run({"x": values}).values()
        (found,) = result.outputs
        assert found.dtype == expected.dtype == np.int8
        differences = np.abs(found.astype(int) - expected)
        taken.append(layers_in_integers(result.regions))
        assert differences.max() <= taken[-1]

    judged()
    return sum(taken)


def test_quantised_layers_in_acl_are_at_most_a_step_from_litert(tmp_path: Path) -> None:
    assert judge(20, tmp_path, int8=True) > 15


@pytest.mark.operators
def test_many_quantised_layers_in_acl_are_at_most_a_step_from_litert(tmp_path: Path) -> None:
    assert judge(150, tmp_path, int8=True) > 110


def test_quantised_layers_stay_in_tvm_unless_somebody_asks(tmp_path: Path) -> None:
    assert judge(3, tmp_path) == 0


def judge_onnx(count: int, folder: Path) -> int:
    """How many of the cases ran in ACL's integers."""
    arm_machine()
    taken, path = [], folder / "model.onnx"

    @settings(
        max_examples=count,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=onnx_layers())
    def judged(case: QuantisedOnnx) -> None:
        onnx.save(case.model, path)
        values = case.values()
        result = offloaded(import_model(open_model(path)), [values], int8=True)
        (expected,) = judged_by_onnxruntime(case.model, {"x": values})
        (found,) = result.outputs
        assert found.dtype == expected.dtype == case.dtype
        taken.append(layers_in_integers(result.regions))
        # Halves go either way in floats too: TVM adds in another order than onnxruntime.
        differences = np.abs(found.astype(int) - expected)
        assert differences.max() <= 1
        assert (differences > 0).mean() <= max(0.05, 2.5 / found.size)

    judged()
    return sum(taken)


def test_quantised_onnx_layers_in_acl_are_at_most_a_step_from_onnxruntime(tmp_path: Path) -> None:
    assert judge_onnx(20, tmp_path) > 10


@pytest.mark.operators
def test_many_quantised_onnx_layers_in_acl_are_at_most_a_step_from_onnxruntime(
    tmp_path: Path,
) -> None:
    assert judge_onnx(150, tmp_path) > 90


@pytest.mark.parametrize(("pads", "taken"), [([0, 1, 0, 1], 1), ([0, 2, 0, 0], 0)])
def test_a_depthwise_layer_that_acl_reads_beyond_stays_in_tvm(
    pads: list[int], taken: int, tmp_path: Path
) -> None:
    """Padded more in front than behind, it came out with what lies before the image in it."""
    arm_machine()
    path, random = tmp_path / "model.onnx", np.random.default_rng(0)
    model = quantised_depthwise((2, 3), pads)
    onnx.save(model, path)
    values = random.integers(-128, 128, (1, 16, 9, 11)).astype("int8")

    result = offloaded(import_model(open_model(path)), [values], int8=True)

    assert layers_in_integers(result.regions) == taken
    (expected,) = judged_by_onnxruntime(model, {"x": values})
    assert np.abs(result.outputs[0].astype(int) - expected).max() <= 1
