"""Every operator that ACL takes, on an emulated ARM CPU, against onnxruntime, over shapes drawn at
random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.acl_arm import arm_machine, offloaded
from support.ncnn_cases import FAMILIES, Case
from support.needs import ARM_PROGRAMS, needs
from support.onnx_models import judged_by_onnxruntime

from edgekit.models.model import import_model, open_model

pytestmark = needs("acl-rpi4", *ARM_PROGRAMS)

CLOSE = 2e-5
"""Of the largest expected value: ACL adds in another order, and approximates exponentials."""
_ACTIVATIONS = ("nn.relu", "nn.leakyrelu", "clip", "sigmoid")
_CONVOLUTIONS = ("nn.conv2d", "nn.conv1d", "nn.conv2d_transpose", "nn.conv1d_transpose")
_MOVEMENTS = ("concat", "reshape", "nn.pad", "strided_slice", "split", "permute_dims")
TAKEN = {
    "convolutions": (*_CONVOLUTIONS, *_ACTIVATIONS),
    "products": _ACTIVATIONS,
    "poolings": ("nn.max_pool2d", "nn.max_pool1d", "nn.avg_pool2d", "nn.avg_pool1d", "mean"),
    "pairs": ("add", "subtract", "multiply", "divide", "maximum", "minimum", "exp"),
    "functions": ("nn.relu", "nn.leakyrelu", "nn.prelu", "clip", "abs", "exp", "negative", "tanh"),
    "normalisations": ("nn.softmax",),
    "movements": (*_MOVEMENTS, "nn.relu"),
    "reductions": ("sum", "mean", "prod", "max", "min"),
    "resizings": ("image.resize2d",),
}
"""What is left to TVM without a reason that ACL_REFUSES knows is a gap in the rules."""
ACL_REFUSES = (
    "ACL holds 4 axes",
    "it is dilated",
    "its kernel is not square",
    "is repeated",
    "it is not over",
    "its coordinates are",
    "its nearest pixels are",
    "two of its pixels are as near",
    "its single pixel",
    "its last windows reach beyond",
    "its hard swish has other constants",
)


def check(case: Case, taken: tuple[str, ...], path: Path) -> None:
    onnx.save(case.model(), path)
    values = case.values()
    names = {f"x{i}": value for i, value in enumerate(values)}
    expected = judged_by_onnxruntime(case.model(), names)
    model = import_model(open_model(path))
    # What no node reads is no input of the model.
    result = offloaded(model, [names[spec.name] for spec in model.inputs])
    left = [reason for reason in result.left if reason.split(":")[0] in taken]
    assert [reason for reason in left if not any(why in reason for why in ACL_REFUSES)] == []
    for actual, wanted in zip(result.outputs, expected, strict=True):
        assert actual.shape == wanted.shape
        allowed = CLOSE * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=allowed)


def judge(family: str, count: int, path: Path) -> None:
    arm_machine()

    @settings(
        max_examples=count,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=FAMILIES[family]())
    def judged(case: Case) -> None:
        check(case, TAKEN[family], path)

    judged()


@pytest.mark.parametrize("family", TAKEN)
def test_operators_in_acl_compute_what_onnxruntime_computes(family: str, tmp_path: Path) -> None:
    judge(family, 4, tmp_path / "case.onnx")


@pytest.mark.operators
@pytest.mark.parametrize("family", TAKEN)
def test_many_operators_in_acl_compute_what_onnxruntime_computes(
    family: str, tmp_path: Path
) -> None:
    judge(family, 60, tmp_path / "case.onnx")


def test_a_tensor_put_together_of_one_is_that_one(tmp_path: Path) -> None:
    """As LSTM and GRU leave it, whose states are one direction's: ACL refuses to join it."""
    arm_machine()
    case = Case([(1, 3, 4, 5)])
    case.node("Relu", [case.node("Concat", [case.node("Abs", ["x0"])], axis=1)])

    check(case, ("concat", "nn.relu", "abs"), tmp_path / "case.onnx")
