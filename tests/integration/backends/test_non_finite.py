"""What may hold NaN or infinity stays out of libraries that don't compute with them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support.offloaded import selection_for

from edgekit.backends.base import Decision
from edgekit.backends.offloading import partition_model
from edgekit.models.model import import_model, open_model

FINITE = (
    "sum = Add (square, one) deviation = Sqrt (sum) q = Div (x, deviation)",
    "e = Exp (x) sum = ReduceSum <keepdims = 1> (e) q = Div (e, sum)",
    "low = Max (square, one) q = Div (x, low)",
    "q = Div (x, one)",
    "q = Sqrt (square)",
    "e = Exp (x) q = Log (e)",
)
NOT_FINITE = (
    "q = Div (x, x)",
    "q = Div (one, square)",
    "n = Neg (x) r = Reshape (n, shape) q = Div (x, r)",
    "q = Sqrt (x)",
    "q = Log (square)",
    "q = Pow (x, half)",
)


def decision(body: str, folder: Path, **options: object) -> Decision:
    """Return what becomes of a ReLU that reads `q`."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    quotients (float[2, 8] x) => (float[2, 8] y)
    <float one = {{1}}, float half = {{0.5}}, int64[2] shape = {{2, 8}}>
    {{ square = Mul (x, x) {body} y = Relu (q) }}
    """
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    model = import_model(open_model(folder / "model.onnx"))
    *_, last = partition_model(model, selection_for("ncnn", **options)).decisions
    assert last.operator == "nn.relu"
    return last


@pytest.mark.parametrize("body", FINITE)
def test_what_is_always_finite_is_offloaded(body: str, tmp_path: Path) -> None:
    assert decision(body, tmp_path).backend == "ncnn"


@pytest.mark.parametrize("body", NOT_FINITE)
def test_what_may_be_infinite_stays(body: str, tmp_path: Path) -> None:
    found = decision(body, tmp_path)

    assert found.backend is None
    assert "NaN or infinity may come from" in found.reason
    assert decision(body, tmp_path, non_finite="pass").backend == "ncnn"
