"""Layers of quantised models in ncnn's integers, against LiteRT's reference kernels, and those of
ONNX models against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.building import request_for
from support.ncnn_arm import ArmRegion, arm_machine
from support.ncnn_lab import RegionRunner, lab, ncnn_selection, offloaded
from support.needs import ARM_PROGRAMS, needs
from support.offloaded import EVERYTHING_PAYS, Offloaded
from support.onnx_models import judged_by_onnxruntime
from support.quantised_cases import Quantised, layers
from support.quantised_onnx import QuantisedOnnx, layers_in_integers, onnx_layers, quantised_product
from support.region_lab import Runs
from support.tflite_models import Op, T, constant, tflite_bytes, write_model

from edgekit.backends.base import Decision, Options, Region
from edgekit.backends.offloading import partition_model
from edgekit.backends.plan import OffloadPlan
from edgekit.building.build import build
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import import_model, open_model
from edgekit.models.oracle import oracle_for
from edgekit.verbs.verify import verify

pytestmark = needs("ncnn")

Start = Callable[[Region, Options], Runs]
TOP = 127


def check(case: Quantised, folder: Path, start: Start) -> Offloaded:
    source = write_model(folder, case.content)
    values = np.minimum(case.values(), TOP - 1)
    result = offloaded(import_model(source), [values], start, int8=True)
    (expected,) = oracle_for(source).run({"x": values}).values()
    (found,) = result.outputs
    assert found.dtype == expected.dtype == np.int8
    if not layers_in_integers(result.regions):
        np.testing.assert_array_equal(found, expected)
        return result
    # ncnn has no 127; and it rounds once, where LiteRT mostly rounds twice.
    wanted = np.minimum(expected, TOP - 1).astype(int)
    assert np.abs(found - wanted).max() <= 1
    assert (found != wanted).mean() <= max(0.01, 2.5 / found.size)
    return result


def judge(count: int, folder: Path, start: Start) -> int:
    """How many of the cases ran in ncnn."""
    taken = []

    @settings(
        max_examples=count,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=layers())
    def judged(case: Quantised) -> None:
        taken.append(layers_in_integers(check(case, folder, start).regions))

    judged()
    return sum(taken)


def test_quantised_layers_in_ncnn_are_a_rare_step_from_litert(tmp_path: Path) -> None:
    lab()
    assert judge(25, tmp_path, RegionRunner) > 15


@pytest.mark.operators
def test_many_quantised_layers_in_ncnn_are_a_rare_step_from_litert(tmp_path: Path) -> None:
    lab()
    assert judge(200, tmp_path, RegionRunner) > 120


def check_onnx(case: QuantisedOnnx, folder: Path, start: Start) -> int:
    path, top = folder / "model.onnx", int(np.iinfo(case.dtype).max)
    onnx.save(case.model, path)
    values = np.minimum(case.values(), top - 1)
    result = offloaded(import_model(open_model(path)), [values], start, int8=True)
    (expected,) = judged_by_onnxruntime(case.model, {"x": values})
    (found,) = result.outputs
    assert found.dtype == expected.dtype == case.dtype
    taken = layers_in_integers(result.regions)
    wanted = np.minimum(expected, top - 1 if taken else top).astype(int)
    # Halves go either way, in TVM's floats too, which adds in another order than onnxruntime.
    assert np.abs(found - wanted).max() <= 1
    assert (found != wanted).mean() <= max(0.01, 2.5 / found.size)
    return taken


def judge_onnx(count: int, folder: Path, start: Start) -> int:
    """How many of the cases ran in ncnn's integers."""
    taken = []

    @settings(
        max_examples=count,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=onnx_layers())
    def judged(case: QuantisedOnnx) -> None:
        taken.append(check_onnx(case, folder, start))

    judged()
    return sum(taken)


def test_quantised_onnx_layers_in_ncnn_are_a_rare_step_from_onnxruntime(tmp_path: Path) -> None:
    lab()
    assert judge_onnx(25, tmp_path, RegionRunner) > 12


@pytest.mark.operators
def test_many_quantised_onnx_layers_in_ncnn_are_a_rare_step_from_onnxruntime(
    tmp_path: Path,
) -> None:
    lab()
    assert judge_onnx(200, tmp_path, RegionRunner) > 100


@needs("ncnn-rpi4", *ARM_PROGRAMS)
def test_quantised_onnx_layers_in_ncnn_on_an_arm_cpu_are_a_rare_step_from_onnxruntime(
    tmp_path: Path,
) -> None:
    arm_machine()
    assert judge_onnx(15, tmp_path, ArmRegion) > 7


def decided(model: onnx.ModelProto, folder: Path) -> Decision:
    """About the product, by its last operator."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    selection = ncnn_selection(int8=True)
    decisions = partition_model(import_model(open_model(path)), selection).decisions
    return next(decision for decision in decisions if decision.operator == "quantize")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"axis": 0}, "not one scale an output channel"),
        ({"w_zero": np.ones(4, "int8")}, "no symmetric int8"),
        ({"b_scale": np.full(4, 0.05 * 0.011, "float32")}, "not in steps of its input's"),
        ({"b_zero": np.ones(4, "int32")}, "its bias has a zero point"),
        ({"x_zero": np.int8(127)}, "stored as 127"),
        ({"result": "uint8"}, "makes uint8 of int8"),
    ],
    ids=["rows scaled", "weights shifted", "other steps", "bias shifted", "top", "other type"],
)
def test_what_is_quantised_otherwise_stays_in_tvm(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    assert decided(quantised_product(), tmp_path).backend == "ncnn"
    decision = decided(quantised_product(**change), tmp_path)
    assert decision.backend is None
    assert why in decision.reason


@needs("ncnn-rpi4", *ARM_PROGRAMS)
def test_quantised_layers_in_ncnn_on_an_arm_cpu_are_a_rare_step_from_litert(
    tmp_path: Path,
) -> None:
    arm_machine()
    assert judge(25, tmp_path, ArmRegion) > 15


def test_quantised_layers_stay_in_tvm_unless_somebody_asks(tmp_path: Path) -> None:
    lab()

    @settings(max_examples=3, derandomize=True, phases=(Phase.generate,), deadline=None)
    @given(case=layers())
    def judged(case: Quantised) -> None:
        source = write_model(tmp_path, case.content)
        result = offloaded(import_model(source), [case.values()])
        assert result.regions == ()
        (expected,) = oracle_for(source).run({"x": case.values()}).values()
        np.testing.assert_array_equal(result.outputs[0], expected)

    judged()


def test_a_built_bundle_of_quantised_layers_is_a_rare_step_from_litert(tmp_path: Path) -> None:
    """The generated C++ itself, through a whole build."""
    lab()
    options = {"ncnn": {"int8": True}}
    plan = OffloadPlan(("ncnn",), options=options, rates=EVERYTHING_PAYS)
    tensors = [
        T("x", (1, 9, 8, 5), "int8", scale=0.05, zero=-20),
        constant("w", np.full((7, 3, 3, 5), 3, "int8"), scale=0.01),
        constant("b", np.arange(7, dtype="int32"), scale=0.01 * 0.05),
        T("y", (), "int8", scale=0.1, zero=-128),
    ]
    settings = {"table": "Conv2DOptions", "padding": 0, "strideH": 1, "strideW": 2}
    convolution = Op("CONV_2D", ("x", "w", "b"), ("y",), settings)
    source = write_model(tmp_path, tflite_bytes(tensors, [convolution], ["x"], ["y"]))
    request = replace(request_for(source.path), offload=plan)

    bundle = build(request, tmp_path / "bundle", isolated=False).bundle

    assert [region.backend for region in bundle.manifest.regions] == ["ncnn"]
    assert verify(bundle, LocalDevice()).passed
