"""What the standard says of zeros, NaN and infinity, which TVM's simplifier knows nothing of; and
comparisons of booleans, which its code generator takes for those of floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.deployed import run_deployed
from support.needs import needs
from support.onnx_models import judged_by_onnxruntime, onnx_model

from edgekit.backends.offloading import compile_model
from edgekit.base.errors import UnsupportedModelError
from edgekit.models.model import import_model, open_model
from edgekit.profiles.cpu import this_cpu

ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -2, 5], np.float32)


def computed(model: onnx.ModelProto, feeds: list[np.ndarray], folder: Path) -> list[np.ndarray]:
    onnx.save(model, folder / "model.onnx")
    model = import_model(open_model(folder / "model.onnx"))
    return run_deployed(compile_model(model, this_cpu()[1]), feeds)


@pytest.mark.parametrize("operator", ["Mul", "Div", "Mod"])
@pytest.mark.parametrize(
    ("zero", "shape", "first"),
    [
        (0.0, (), False),
        (-0.0, (1,), False),
        (0.0, (8,), True),
        (0.0, (), True),
        (-0.0, (8,), False),
    ],
)
def test_a_zero_is_a_number_like_others(
    operator: str, zero: float, shape: tuple[int, ...], first: bool, tmp_path: Path
) -> None:
    attributes = {"fmod": 1} if operator == "Mod" else {}
    operands = ["zero", "x"] if first else ["x", "zero"]
    nodes = [helper.make_node(operator, operands, ["y"], **attributes)]
    weights = {"zero": np.full(shape, zero, np.float32)}
    model = onnx_model(nodes, {"x": ODD.shape}, ["y"], weights)

    (found,) = computed(model, [ODD], tmp_path)

    np.testing.assert_array_equal(found, judged_by_onnxruntime(model, {"x": ODD})[0])


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 3.0])
def test_a_scalar_is_divided_by_zero_and_multiplied_with_it(value: float, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Div", ["x", "zero"], ["quotient"]),
        helper.make_node("Mul", ["x", "zero"], ["product"]),
        helper.make_node("Div", ["one", "product"], ["inverse"]),
    ]
    weights = {"zero": np.array(0, np.float32), "one": np.array(1, np.float32)}
    model = onnx_model(nodes, {"x": ()}, ["quotient", "product", "inverse"], weights)
    given = np.array(value, np.float32)

    found = computed(model, [given], tmp_path)

    for mine, judge in zip(found, judged_by_onnxruntime(model, {"x": given}), strict=True):
        np.testing.assert_array_equal(mine, judge)


def test_nan_is_unequal_to_itself(tmp_path: Path) -> None:
    nodes = [helper.make_node("Equal", ["x", "x"], ["y"])]
    model = onnx_model(nodes, {"x": ODD.shape}, ["y"], {}, {"y": TensorProto.BOOL})

    (found,) = computed(model, [ODD], tmp_path)

    np.testing.assert_array_equal(found, [False, *[True] * 7])


def test_whole_numbers_divided_by_a_constant_zero_are_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["whole"], to=TensorProto.INT32),
        helper.make_node("Div", ["whole", "zero"], ["y"]),
    ]
    model = onnx_model(
        nodes, {"x": (4,)}, ["y"], {"zero": np.array(0, np.int32)}, {"y": TensorProto.INT32}
    )

    with pytest.raises(UnsupportedModelError, match="divides whole numbers by zero"):
        computed(model, [np.ones(4, np.float32)], tmp_path)


@pytest.mark.parametrize("extent", [1, 3, 17, 64])
def test_booleans_are_compared_in_vectors(extent: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["a"]),
        helper.make_node("Less", ["x", "one"], ["b"]),
        helper.make_node("Equal", ["a", "b"], ["same"]),
        helper.make_node("Xor", ["a", "b"], ["different"]),
    ]
    weights = {"zero": np.array(0, np.float32), "one": np.array(1, np.float32)}
    types = {"same": TensorProto.BOOL, "different": TensorProto.BOOL}
    model = onnx_model(nodes, {"x": (extent,)}, ["same", "different"], weights, types)
    given = np.linspace(-2, 2, extent, dtype=np.float32)

    found = computed(model, [given], tmp_path)

    for mine, judge in zip(found, judged_by_onnxruntime(model, {"x": given}), strict=True):
        np.testing.assert_array_equal(mine, judge)


@needs("torch")
def test_a_division_that_rounds_down_and_a_search_compile(tmp_path: Path) -> None:
    import torch

    class Rounding(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: object) -> tuple[object, ...]:
            down = torch.div(x, 3, rounding_mode="floor")
            return (
                down,
                torch.remainder(x, -7),
                torch.bucketize(x, torch.tensor([-5, 0, 5]), right=True),
            )

    given = torch.arange(-20, 31, dtype=torch.int32).reshape(3, 17)
    path = tmp_path / "rounding.pt2"
    torch.export.save(torch.export.export(Rounding().eval(), (given,)), path)
    compiled = compile_model(import_model(open_model(path)), this_cpu()[1])

    found = run_deployed(compiled, [given.numpy()])

    for mine, judge in zip(found, Rounding()(given), strict=True):
        np.testing.assert_array_equal(mine, judge.numpy())
