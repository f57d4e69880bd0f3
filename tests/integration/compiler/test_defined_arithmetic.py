"""Whole-number arithmetic that processors and C leave undefined has one result, and ends nothing.

The results are those of docs/verify.md, worked out here in Python's own integers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs.c_library import FLAGS, run_tree
from onnx import helper
from support.c_builds import CORTEX_M4
from support.elementwise import deployed

from edgekit.aot.compile import compile_tree
from edgekit.aot.generators import portable_generators
from edgekit.aot.job import TreeJob
from edgekit.aot.tree import Origin
from edgekit.aot.write import write_tree
from edgekit.base.tvm_compat import load_tvm
from edgekit.models.model import import_model, open_model

tvm = load_tvm()
import tvm_ffi  # noqa: E402
from tvm import ir, tirx  # noqa: E402

from edgekit.compiler.passes.defined_arithmetic import defined_arithmetic  # noqa: E402
from edgekit.compiler.passes.propagate_nan import propagate_nan  # noqa: E402

RANDOM = np.random.default_rng(0)
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")


def model_of(nodes: list[onnx.NodeProto], feeds: Mapping[str, np.ndarray], folder: Path) -> Path:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "test", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model, strict_mode=True), path)
    return path


def as_library(model: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return deployed(model, feeds)


def as_c(model: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Under the sanitizer of undefined behaviour, that of conversions of floats included."""
    assert "-fsanitize=undefined" in FLAGS
    imported = import_model(open_model(model))
    origin = Origin("model", model.name, "0", "test", CORTEX_M4.name)
    job = TreeJob("net", origin, CORTEX_M4)
    tree = compile_tree(imported, job, portable_generators())
    folder = model.with_name("tree")
    write_tree(tree.plan, folder)
    return run_tree(tree.plan, folder, feeds, "-fsanitize=float-cast-overflow")


WAYS = (as_library, as_c)
Run = Callable[[Path, Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def wrapped(value: int, dtype: str) -> int:
    limits = np.iinfo(dtype)
    return (value - int(limits.min)) % 2**limits.bits + int(limits.min)


def towards_zero(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("run", WAYS)
def test_divisions_by_zero_and_overflows_have_a_result(run: Run, tmp_path: Path) -> None:
    feeds, nodes, expected = {}, [], {}
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        least, most = int(limits.min), int(limits.max)
        ones = [-1, -3] if least else [1, 3]
        pairs = [(a, b) for a in (least, most, 0, 7, least + 1) for b in (0, *ones, 1, 4, most)]
        first, second = (np.array(column, dtype) for column in zip(*pairs, strict=True))
        feeds |= {f"a_{dtype}": first, f"b_{dtype}": second}
        names = [f"a_{dtype}", f"b_{dtype}"]
        for operator, more in (("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})):
            output = f"{operator}{len(more)}_{dtype}"
            nodes.append(helper.make_node(operator, names, [output], **more))
        expected[f"Div0_{dtype}"] = [wrapped(towards_zero(a, b), dtype) for a, b in pairs]
        expected[f"Mod0_{dtype}"] = [a % b if b else 0 for a, b in pairs]
        expected[f"Mod1_{dtype}"] = [a - b * towards_zero(a, b) if b else 0 for a, b in pairs]

    found = run(model_of(nodes, feeds, tmp_path), feeds)

    for name, values in expected.items():
        assert found[name].tolist() == values, name


def nearest(value: float, dtype: str) -> int:
    """The nearest integer of 32 or 64 bits, and of it the bits that the type has."""
    if math.isnan(value):
        return 0
    wide = np.iinfo("int64" if dtype in ("int64", "uint32", "uint64") else "int32")
    if dtype == "uint64" and value >= 2**63:
        return int(np.iinfo(dtype).max) if value >= 2**64 else int(value)
    low, high = int(wide.min), int(wide.max)
    whole = low if value <= low else high if value >= high else int(value)
    return wrapped(whole, dtype)


@pytest.mark.parametrize("run", WAYS)
def test_floats_outside_of_an_integer_type_have_a_result(run: Run, tmp_path: Path) -> None:
    powers = [sign * 2.0**power for sign in (1, -1) for power in (7, 8, 15, 16, 31, 32, 63, 64, 90)]
    odd = [math.nan, math.inf, -math.inf, -0.0, 0.5, -1.5, 300.7, -129.0, 3e9, -3e9, 1e19]
    feeds = {kind: np.array([*odd, *powers], kind) for kind in FLOATS}
    nodes = [
        helper.make_node(
            "Cast", [kind], [f"{kind}_{dtype}"], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        )
        for kind in FLOATS
        for dtype in INTEGERS
    ]

    found = run(model_of(nodes, feeds, tmp_path), feeds)

    for kind in FLOATS:
        for dtype in INTEGERS:
            wanted = [nearest(value, dtype) for value in feeds[kind].tolist()]
            assert found[f"{kind}_{dtype}"].tolist() == wanted, (kind, dtype)


@pytest.mark.parametrize("run", WAYS)
def test_shifts_and_sums_beyond_the_width_have_a_result(run: Run, tmp_path: Path) -> None:
    feeds, nodes, expected = {}, [], {}
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        most, least = int(limits.max), int(limits.min)
        pairs = [(a, b) for a in (most, least, 5, least + 3) for b in (0, 1, most, 2, least)]
        first, second = (np.array(column, dtype) for column in zip(*pairs, strict=True))
        names = [f"a_{dtype}", f"b_{dtype}"]
        feeds |= dict(zip(names, (first, second), strict=True))
        for operator in ("Add", "Sub", "Mul"):
            nodes.append(helper.make_node(operator, names, [f"{operator}_{dtype}"]))
        expected[f"Add_{dtype}"] = [wrapped(a + b, dtype) for a, b in pairs]
        expected[f"Sub_{dtype}"] = [wrapped(a - b, dtype) for a, b in pairs]
        expected[f"Mul_{dtype}"] = [wrapped(a * b, dtype) for a, b in pairs]
        if dtype.startswith("u"):
            for direction in ("LEFT", "RIGHT"):
                name = f"{direction}_{dtype}"
                nodes.append(helper.make_node("BitShift", names, [name], direction=direction))
            inside = [b < limits.bits for _, b in pairs]
            expected[f"LEFT_{dtype}"] = [
                wrapped(a << b, dtype) if fits else 0
                for (a, b), fits in zip(pairs, inside, strict=True)
            ]
            expected[f"RIGHT_{dtype}"] = [
                a >> b if fits else 0 for (a, b), fits in zip(pairs, inside, strict=True)
            ]

    found = run(model_of(nodes, feeds, tmp_path), feeds)

    for name, values in expected.items():
        assert found[name].tolist() == values, name


@pytest.mark.parametrize("run", WAYS)
def test_a_maximum_is_nan_where_either_operand_is(run: Run, tmp_path: Path) -> None:
    odd = np.array([1.0, math.nan, -math.inf, math.nan, 0.0, 3.0, 2.0, -1.0, math.nan], "float32")
    feeds = {"a": odd, "b": np.roll(odd, 1)}
    nodes = [helper.make_node(kind, ["a", "b"], [kind]) for kind in ("Max", "Min")]

    found = run(model_of(nodes, feeds, tmp_path), feeds)

    np.testing.assert_array_equal(found["Max"], np.maximum(feeds["a"], feeds["b"]))
    np.testing.assert_array_equal(found["Min"], np.minimum(feeds["a"], feeds["b"]))


def chain(kind: str, depth: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """A chain that becomes one kernel, each of its operations guarded."""
    is_whole = kind == "division"
    dtype = "int64" if is_whole else "float32"
    values = RANDOM.integers(-10_000, 10_000, (6, 2)).astype(dtype)
    feeds = {"x": values, "z": np.full((6, 2), 3, dtype)}
    nodes, last = [], "x"
    for step in range(depth):
        name = f"t{step}"
        if is_whole:
            nodes.append(helper.make_node(("Div", "Mod")[step % 2], [last, "z"], [name]))
        elif kind == "maximum":
            nodes.append(helper.make_node("Mul", [last, "z"], [f"{name}_product"]))
            operator = ("Max", "Min")[step % 2]
            nodes.append(helper.make_node(operator, [f"{name}_product", "z"], [name]))
        else:
            nodes.append(helper.make_node("Div", [last, "z"], [f"{name}_part"]))
            nodes.append(helper.make_node("Cast", [f"{name}_part"], [f"{name}_whole"], to=6))
            nodes.append(helper.make_node("Cast", [f"{name}_whole"], [name], to=1))
        last = name
    return nodes, feeds


@pytest.mark.parametrize("kind", ["division", "maximum", "conversion"])
def test_a_long_chain_is_compiled_and_right(kind: str, tmp_path: Path) -> None:
    """Each step once multiplied the work of the one before: with `Let`, and in TVM's simplifier."""
    nodes, feeds = chain(kind, 24)
    model = model_of(nodes, feeds, tmp_path)

    found = as_library(model, feeds)

    wanted = onnxruntime.InferenceSession(str(model)).run([nodes[-1].output[0]], feeds)[0]
    np.testing.assert_array_equal(found[nodes[-1].output[0]], wanted)


def test_the_code_of_a_chain_grows_by_the_same_with_each_step() -> None:
    def kernel(depth: int) -> Any:
        source, target = (tirx.decl_buffer((4,), "int64", name=name) for name in ("source", "made"))
        value = tirx.BufferLoad(source, [tirx.const(0, "int32")])
        for step in range(depth):
            divisor = tirx.BufferLoad(source, [tirx.const(1, "int32")])
            value = (tirx.Div, tirx.Mod)[step % 2](value, divisor)
            value = tirx.Cast(
                "int64", tirx.Max(tirx.Cast("float32", value), tirx.Cast("float32", divisor))
            )
        store = tirx.BufferStore(target, value, [tirx.const(0, "int32")])
        module = tvm.IRModule({"main": tirx.PrimFunc([source, target], store)})
        return defined_arithmetic()(propagate_nan()(module))["main"].body

    def calls(depth: int) -> tuple[int, int]:
        counts = Counter[str]()
        tvm_ffi.structural_walk(kernel(depth), (tirx.Let, lambda let: counts.update(["let"])))
        tvm_ffi.structural_walk(kernel(depth), (ir.Call, lambda call: counts.update(["call"])))
        return counts["let"], counts["call"]

    assert [calls(depth) for depth in (2, 4, 16)] == [(0, 6), (0, 12), (0, 48)]
