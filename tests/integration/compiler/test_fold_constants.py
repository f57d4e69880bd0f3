"""What depends on constants alone is computed once, and to the numbers of onnxruntime."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from support.examples import examples
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.relax_modules import operators_in, relax_of, run_module, without_dead_code

WEIGHT = np.random.default_rng(0).uniform(0.5, 2, (2, 1, 3, 4)).astype("float32")
X = np.random.default_rng(1).standard_normal((3, 4)).astype("float32")


def folded(module: Any) -> Any:
    from edgekit.compiler.passes.fold_constants import fold_constants

    return without_dead_code(fold_constants()(module))


def assert_folds_to_one_addition(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]
) -> None:
    """x + (something computed of constants alone)."""
    model = onnx_model(
        [*nodes, helper.make_node("Add", ["x", "c"], ["y"])], {"x": X.shape}, ["y"], weights
    )
    expected = judged_by_onnxruntime(model, {"x": X})

    module = folded(relax_of(model))

    assert operators_in(module) == ["add"]
    (actual,) = run_module(module, {"x": X})
    np.testing.assert_allclose(actual, expected[0], rtol=1e-6, atol=1e-6)


def axes(*values: int) -> np.ndarray:
    return np.array(values, dtype="int64")


@pytest.mark.parametrize(
    ("node", "extra"),
    [
        (helper.make_node("Reshape", ["w", "shape"], ["c"]), {"shape": axes(2, 1, 3, 4)}),
        (helper.make_node("Flatten", ["scalar"], ["c"], axis=0), {}),
        (helper.make_node("Transpose", ["wide"], ["c"], perm=[1, 0]), {}),
        (helper.make_node("Unsqueeze", ["row", "axes"], ["c"]), {"axes": axes(0)}),
        (helper.make_node("Squeeze", ["one", "axes"], ["c"]), {"axes": axes(0)}),
        (helper.make_node("Expand", ["row", "shape"], ["c"]), {"shape": axes(3, 4)}),
        (helper.make_node("Cast", ["integers"], ["c"], to=TensorProto.FLOAT), {}),
        (helper.make_node("Sqrt", ["w"], ["c"]), {}),
        (helper.make_node("Neg", ["w"], ["c"]), {}),
        (helper.make_node("Add", ["w", "row"], ["c"]), {}),
        (helper.make_node("Sub", ["row", "w"], ["c"]), {}),
        (helper.make_node("Mul", ["w", "scalar"], ["c"]), {}),
        (helper.make_node("Slice", ["w", "from", "to"], ["c"]), {"from": axes(1), "to": axes(9)}),
        (
            helper.make_node("Slice", ["w", "from", "to", "axes", "steps"], ["c"]),
            {"from": axes(-1), "to": axes(-9), "axes": axes(2), "steps": axes(-1)},
        ),
        (helper.make_node("Gather", ["w", "places"], ["c"], axis=2), {"places": axes(-1, 0, 2)}),
        (helper.make_node("Gather", ["w", "places"], ["c"]), {"places": np.array(-1)}),
        (helper.make_node("Concat", ["w", "w"], ["c"], axis=1), {}),
        (helper.make_node("MatMul", ["square", "wide"], ["c"]), {}),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)
def test_an_operator_on_constants_is_gone(
    node: onnx.NodeProto, extra: dict[str, np.ndarray]
) -> None:
    constants = {
        "w": WEIGHT,
        "wide": np.arange(12, dtype="float32").reshape(3, 4)
        if node.op_type == "MatMul"
        else np.arange(12, dtype="float32").reshape(4, 3),
        "square": np.arange(9, dtype="float32").reshape(3, 3),
        "row": np.arange(4, dtype="float32"),
        "one": np.array([2.5], dtype="float32"),
        "scalar": np.array(1.5, dtype="float32"),
        "integers": np.arange(-6, 6, dtype="int32").reshape(3, 4),
        **extra,
    }
    used = {name: value for name, value in constants.items() if name in node.input}

    assert_folds_to_one_addition([node], used)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_quantised_weights_become_real_ones(dtype: str, axis: int | None) -> None:
    channels = () if axis is None else (X.shape[axis],)
    random = np.random.default_rng(5)
    weights = {
        "stored": random.integers(0, 127, X.shape).astype(dtype),
        "scale": random.uniform(0.01, 0.1, channels).astype("float32"),
    }
    names = ["stored", "scale"]
    if dtype != "int32":
        weights["zero"] = random.integers(0, 100, channels).astype(dtype)
        names.append("zero")
    attributes = {} if axis is None else {"axis": axis}

    assert_folds_to_one_addition(
        [helper.make_node("DequantizeLinear", names, ["c"], **attributes)], weights
    )


def relax_module(build: Any) -> Any:
    """`x + build()` for a scalar or broadcastable Relax expression of constants."""
    from edgekit.base.tvm_compat import load_tvm

    load_tvm()
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            computed = builder.emit(build(relax))
            result = builder.emit_output(relax.op.add(x, computed))
        builder.emit_func_output(result)
    return builder.get()


def test_quantised_weights_become_real_ones_however_large_they_get() -> None:
    from edgekit.compiler.passes.fold_constants import MAX_GROWTH_BYTES

    stored = np.ones((MAX_GROWTH_BYTES // 12, X.shape[1] * 2), "int8")
    model = onnx_model(
        [
            helper.make_node("DequantizeLinear", ["w", "scale"], ["c"]),
            helper.make_node("MatMul", ["c", "x"], ["y"]),
        ],
        {"x": (stored.shape[1], 2)},
        ["y"],
        {"w": stored, "scale": np.array(0.5, dtype="float32")},
    )

    assert operators_in(folded(relax_of(model))) == ["matmul"]


def imported(model: onnx.ModelProto, folder: Path) -> Any:
    from edgekit.models.model import import_model, open_model

    onnx.save(model, folder / "model.onnx")
    return import_model(open_model(folder / "model.onnx")).module


def test_equal_slices_of_a_weight_are_one_constant() -> None:
    from edgekit.base.tvm_compat import constant_array

    def two_slices(relax: Any) -> Any:
        first, second = (
            relax.op.strided_slice(relax.const(WEIGHT[0, 0]), [0], [0], [1]) for _ in range(2)
        )
        return relax.op.add(relax.op.abs(first), relax.op.exp(second))

    module = folded(relax_module(two_slices))

    values = [binding.value for binding in module["main"].body.blocks[0].bindings]
    first, second = (value for value in values if constant_array(value) is not None)
    assert operators_in(module) == ["abs", "exp", "add", "add"]
    assert first.same_as(second)


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_a_recurrent_layer_slices_its_weights_before_it_runs(kind: str, tmp_path: Path) -> None:
    from edgekit.base.tvm_compat import constant_array, load_tvm

    load_tvm()
    from tvm import relax

    gates, hidden = {"GRU": 3, "LSTM": 4, "RNN": 1}[kind], 4
    random = np.random.default_rng(0)
    weights = {
        name: random.standard_normal((1, gates * hidden, width)).astype("float32")
        for name, width in (("w", 5), ("r", hidden))
    }
    node = helper.make_node(kind, ["x", "w", "r"], ["y"], hidden_size=hidden)
    module = folded(imported(onnx_model([node], {"x": (6, 1, 5)}, ["y"], weights), tmp_path))

    computed = [
        binding.value
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
        and binding.value.args
        and all(constant_array(argument) is not None for argument in binding.value.args[:1])
        and not any(isinstance(argument, relax.Var) for argument in binding.value.args)
    ]
    assert computed == []


def test_a_scalar_stays_a_scalar() -> None:
    module = folded(
        relax_module(lambda relax: relax.op.reshape(relax.const(np.float32([4.0])), ()))
    )

    assert operators_in(module) == ["add"]
    constant = module["main"].body.blocks[0].bindings[0].value
    assert tuple(constant.ty.shape) == ()


def test_a_constant_that_would_grow_large_stays_computed() -> None:
    from edgekit.compiler.passes.fold_constants import MAX_GROWTH_BYTES

    elements = MAX_GROWTH_BYTES // 4 + 2
    model = onnx_model(
        [
            helper.make_node("Expand", ["one", "shape"], ["c"]),
            helper.make_node("Add", ["x", "c"], ["y"]),
        ],
        {"x": (elements,)},
        ["y"],
        {"one": np.array([2.5], dtype="float32"), "shape": axes(elements)},
    )

    assert operators_in(folded(relax_of(model))) == ["broadcast_to", "add"]


def test_integer_arithmetic_is_left_to_the_device() -> None:
    module = relax_module(
        lambda relax: relax.op.astype(
            relax.op.add(relax.const(np.int32(2)), relax.const(np.int32(3))), "float32"
        )
    )

    assert operators_in(folded(module)) == ["add", "astype", "add"]


def test_numbers_out_of_range_make_no_noise() -> None:
    module = relax_module(lambda relax: relax.op.sqrt(relax.const(np.float32(-1.0))))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = folded(module)

    (result,) = run_module(module, {"x": X})
    assert np.isnan(result).all()


UNARY = ("Neg", "Transpose", "Squeeze", "Unsqueeze", "Reshape", "Sqrt")
BINARY = ("Add", "Sub", "Mul")


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(st.sampled_from(UNARY + BINARY), min_size=1, max_size=6), data=st.data())
def test_any_expression_of_constants_keeps_its_value(steps: list[str], data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3), label="shape")
    random = np.random.default_rng(data.draw(st.integers(0, 2**16), label="seed"))
    weights = {"c0": random.uniform(0.1, 2, shape).astype("float32")}
    nodes = []
    for number, step in enumerate(steps):
        sources, attributes, before = [f"c{number}"], {}, f"c{number}"
        if step in BINARY:
            weights[f"w{number}"] = random.uniform(0.1, 2, shape[-1:]).astype("float32")
            sources.append(f"w{number}")
        elif step == "Sqrt":
            nodes.append(helper.make_node("Abs", [before], [f"abs{number}"]))
            nodes.append(helper.make_node("Neg", [f"abs{number}"], [f"neg{number}"]))
            nodes.append(helper.make_node("Neg", [f"neg{number}"], [f"pos{number}"]))
            sources = [f"pos{number}"]
        elif step == "Transpose":
            order = data.draw(st.permutations(range(len(shape))), label="order")
            attributes, shape = {"perm": order}, [shape[axis] for axis in order]
        elif step == "Unsqueeze":
            weights[f"axes{number}"], shape = axes(0), [1, *shape]
            sources.append(f"axes{number}")
        elif step == "Squeeze":
            ones = [axis for axis, extent in enumerate(shape) if extent == 1][:1]
            weights[f"axes{number}"] = axes(*ones)
            shape = [extent for axis, extent in enumerate(shape) if axis not in ones]
            sources.append(f"axes{number}") if ones else None
            step = "Squeeze" if ones else "Identity"
        elif step == "Reshape":
            shape = [int(np.prod(shape))]
            weights[f"to{number}"] = axes(*shape)
            sources.append(f"to{number}")
        nodes.append(helper.make_node(step, sources, [f"c{number + 1}"], **attributes))
    nodes.append(helper.make_node("Add", ["x", f"c{len(steps)}"], ["y"]))
    model = onnx_model(nodes, {"x": [1]}, ["y"], weights)
    x = np.array([0.25], dtype="float32")

    module = folded(relax_of(model))

    np.testing.assert_allclose(
        run_module(module, {"x": x})[0],
        judged_by_onnxruntime(model, {"x": x})[0],
        rtol=1e-5,
        atol=1e-5,
    )
