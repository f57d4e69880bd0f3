"""Every operator that ncnn takes, against onnxruntime, over shapes drawn at random."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.ncnn_arm import ArmRegion, arm_machine
from support.ncnn_cases import FAMILIES, Case
from support.ncnn_lab import RegionRunner, lab, offloaded
from support.needs import ARM_PROGRAMS, needs
from support.onnx_models import judged_by_onnxruntime
from support.region_lab import Runs
from support.source import ROOT

from edgekit.backends.base import Options, Region
from edgekit.models.model import import_model, open_model

pytestmark = needs("ncnn")

Start = Callable[[Region, Options], Runs]

CLOSE = 2e-5
"""Of the largest expected value: ncnn adds in another order, and approximates exponentials."""


def check(case: Case, path: Path, start: Start) -> None:
    onnx.save(case.model(), path)
    values = case.values()
    names = {f"x{i}": value for i, value in enumerate(values)}
    expected = judged_by_onnxruntime(case.model(), names)
    model = import_model(open_model(path))
    # What no node reads is no input of the model.
    result = offloaded(model, [names[spec.name] for spec in model.inputs], start)
    left = [reason for reason in result.left if reason.split(":")[0] not in case.stays]
    assert not left
    for actual, wanted in zip(result.outputs, expected, strict=True):
        assert actual.shape == wanted.shape
        allowed = CLOSE * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=allowed)


def judge(family: str, count: int, path: Path, start: Start = RegionRunner) -> None:
    @settings(
        max_examples=count,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=FAMILIES[family]())
    def judged(case: Case) -> None:
        check(case, path, start)

    judged()


@pytest.mark.parametrize("family", FAMILIES)
def test_operators_in_ncnn_compute_what_onnxruntime_computes(family: str, tmp_path: Path) -> None:
    lab()
    judge(family, 5, tmp_path / "case.onnx")


@pytest.mark.operators
@pytest.mark.parametrize("family", FAMILIES)
def test_many_operators_in_ncnn_compute_what_onnxruntime_computes(
    family: str, tmp_path: Path
) -> None:
    lab()
    judge(family, 80, tmp_path / "case.onnx")


@needs("ncnn-rpi4", *ARM_PROGRAMS)
@pytest.mark.operators
@pytest.mark.parametrize("family", FAMILIES)
def test_operators_in_ncnn_on_an_arm_cpu_compute_what_onnxruntime_computes(
    family: str, tmp_path: Path
) -> None:
    """Other vector code than this machine's, under emulation."""
    arm_machine()
    judge(family, 30, tmp_path / "case.onnx", ArmRegion)


NODE_CASES = (
    "^test_(relu|leakyrelu_default|maxpool_2d_ceil|averagepool_2d_pads|"
    "gemm_all_attributes|softmax_axis_1|transpose_all_permutations_3|add_bcast)$"
)


@pytest.mark.slow
def test_node_cases_of_onnx_are_right_with_ncnn_in_them(tmp_path: Path) -> None:
    """A few of those that `benchmarks/onnx_nodes.py --offload ncnn` runs, with C++ compiled for
    each."""
    lab()
    script, out = ROOT / "benchmarks" / "onnx_nodes.py", tmp_path / "verdicts.json"
    command = [sys.executable, str(script), "--offload", "ncnn", "--filter", NODE_CASES]
    subprocess.run([*command, "--jobs", "2", "--json", str(out)], check=True, cwd=tmp_path)

    found = json.loads(out.read_text())
    assert len(found) == 8
    assert {item["verdict"] for item in found} == {"right"}
    assert all(item["regions"] for item in found)
