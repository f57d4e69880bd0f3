"""Sorting is part of the model's own code, stable, with NaN above all numbers, as in numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for
from support.c_builds import SANITIZED, built_tree, make
from support.compiling import results_of
from support.on_device import run_on
from support.onnx_models import judged_by_onnxruntime, onnx_model

from edgekit.backends.offloading import compile_model
from edgekit.base.tvm_compat import load_tvm
from edgekit.building.build import build
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import Model, ModelSource
from edgekit.profiles.cpu import this_cpu

RANDOM = np.random.default_rng(11)
DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "uint64")


def elements(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers with many equal ones, and NaN and infinities where the type has them."""
    if dtype == "bool":
        return RANDOM.integers(0, 2, shape).astype(bool)
    if "float" not in dtype:
        return RANDOM.integers(0, 30, shape).astype(dtype)
    kind: Any = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    values = (RANDOM.standard_normal(shape) * 3).astype(kind)
    flat = values.reshape(-1)
    flat[::7], flat[1::5], flat[2::11], flat[3::11] = np.nan, 1, np.inf, -np.inf
    return values


def in_order(values: np.ndarray, axis: int, *, descending: bool) -> np.ndarray:
    """Where each element of the sorted array was, according to numpy. Equal ones keep their
    order."""
    keys = values.astype("float64") if values.dtype.name == "bfloat16" else values
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return keys.shape[axis] - 1 - np.flip(backwards, axis)


def computed(values: np.ndarray, operator: Callable[[Any], Any]) -> list[np.ndarray]:
    load_tvm()
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(values.shape, values.dtype.name))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(operator(x)))
        builder.emit_func_output(output)
    source = ModelSource(Path("test.onnx"), "onnx", "0" * 64)
    module = relax.transform.Normalize()(builder.get())
    return results_of(compile_model(Model(source, module, (), (), ()), this_cpu()[1]), [values])


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
@pytest.mark.parametrize("descending", [False, True])
def test_elements_of_every_type_come_in_numpys_order(dtype: str, descending: bool) -> None:
    load_tvm()
    from tvm.relax import op

    values = elements(dtype, (5, 17, 3))
    order = in_order(values, 1, descending=descending)

    (argsort,) = computed(values, lambda x: op.argsort(x, 1, descending, "int64"))
    top, places = computed(values, lambda x: op.topk(x, 9, 1, "both", descending, "int32"))

    np.testing.assert_array_equal(argsort, order)
    np.testing.assert_array_equal(places, order[:, :9])
    expected = np.take_along_axis(values, order, 1)[:, :9]
    assert top.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(1,), (3, 1), (40, 1000), (3, 0), (0, 3)])
def test_rows_of_any_length_are_sorted(shape: tuple[int, ...]) -> None:
    load_tvm()
    from tvm.relax import op

    values = elements("float32", shape)

    (found,) = computed(values, lambda x: op.sort(x, -1, False))

    order = in_order(values, -1, descending=False)
    assert found.tobytes() == np.take_along_axis(values, order, -1).tobytes()


@pytest.mark.parametrize("largest", [0, 1])
def test_a_model_of_one_topk_runs_where_models_are_deployed(largest: int, tmp_path: Path) -> None:
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1, largest=largest)]
    model = onnx_model(
        nodes, {"x": (3, 50, 2)}, ["v", "i"], {"k": np.array([7])}, {"i": onnx.TensorProto.INT64}
    )
    onnx.save(model, tmp_path / "model.onnx")
    request = request_for(tmp_path / "model.onnx")
    bundle = build(request, tmp_path / "bundle", use_cache=False, isolated=False).bundle

    given = bundle.reference_inputs()
    found = run_on(LocalDevice(), bundle, given).outputs

    values, places = judged_by_onnxruntime(model, given)
    np.testing.assert_array_equal(found["v"], values)
    np.testing.assert_array_equal(found["i"], places)


def test_the_c_of_a_topk_gives_what_onnxruntime_gives(tmp_path: Path) -> None:
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1)]
    model = onnx_model(
        nodes, {"x": (3, 50, 2)}, ["v", "i"], {"k": np.array([7])}, {"i": onnx.TensorProto.INT64}
    )

    built = built_tree(model, tmp_path / "c")
    tested = make(built.folder, "test", f"CFLAGS={' '.join(SANITIZED)}")

    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert tested.stdout.count(": ok\n") == 2
