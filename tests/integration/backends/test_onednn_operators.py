"""Every operator that oneDNN takes, against onnxruntime, over shapes drawn at random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.ncnn_cases import FAMILIES, Case
from support.needs import needs
from support.onednn_lab import offloaded
from support.onnx_models import judged_by_onnxruntime

from edgekit.models.model import import_model, open_model

pytestmark = needs("onednn")

CLOSE = 2e-5
"""Of the largest expected value: oneDNN adds in another order, and approximates exponentials."""
STAYS = {
    "functions": ("erf", "floor", "ceil"),
    "places": ("argmax", "flip", "subtract", "floor"),
    "pairs": ("subtract", "divide", "add", "multiply", "maximum", "minimum"),
}
"""What oneDNN has no primitive for; of two tensors it repeats the second alone."""
WITH_BATCH = ("convolutions", "poolings", "resizings")


def check(case: Case, stays: tuple[str, ...], path: Path) -> None:
    onnx.save(case.model(), path)
    values = case.values()
    names = {f"x{i}": value for i, value in enumerate(values)}
    expected = judged_by_onnxruntime(case.model(), names)
    model = import_model(open_model(path))
    # What no node reads is no input of the model.
    result = offloaded(model, [names[spec.name] for spec in model.inputs])
    left = [reason for reason in result.left if reason.split(":")[0] not in stays]
    assert not left
    for actual, wanted in zip(result.outputs, expected, strict=True):
        assert actual.shape == wanted.shape
        allowed = CLOSE * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=allowed)


def judge(family: str, count: int, path: Path) -> None:
    batches = st.sampled_from((1, 2, 3)) if family in WITH_BATCH else st.just(1)

    @settings(
        max_examples=count,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=FAMILIES[family](), batch=batches)
    def judged(case: Case, batch: int) -> None:
        case.inputs = [(batch * shape[0], *shape[1:]) for shape in case.inputs]
        check(case, (*case.stays, *STAYS.get(family, ())), path)

    judged()


@pytest.mark.parametrize("family", FAMILIES)
def test_operators_in_onednn_compute_what_onnxruntime_computes(family: str, tmp_path: Path) -> None:
    judge(family, 5, tmp_path / "case.onnx")


@pytest.mark.operators
@pytest.mark.parametrize("family", FAMILIES)
def test_many_operators_in_onednn_compute_what_onnxruntime_computes(
    family: str, tmp_path: Path
) -> None:
    judge(family, 80, tmp_path / "case.onnx")
