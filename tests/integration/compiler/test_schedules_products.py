"""Matrix products through edgekit's schedules, judged by onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from support.compiling import check_against_onnxruntime, one_node_model, random_array
from support.examples import examples
from support.onnx_models import onnx_model

from edgekit.profiles.cpu import Target

ROWS = st.one_of(st.integers(1, 24), st.sampled_from([31, 49, 97, 128, 197]))
COLUMNS = st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 65, 100, 127, 131, 257, 1000]))
DEPTHS = st.one_of(st.integers(1, 40), st.sampled_from([127, 256, 513]))
DEAR = ("Sigmoid", "Tanh", "Erf", "Exp")
"""Two of these behind a product are right too, and take minutes to compile where vectors are short.
"""
CPUS = st.sampled_from([None, None, "haswell", "x86-64"])


@settings(max_examples=examples(25))
@given(
    st.lists(st.integers(1, 3), max_size=2),
    ROWS,
    DEPTHS,
    COLUMNS,
    st.lists(st.sampled_from(["bias", "Relu", "Sigmoid", "Tanh", "Erf", "Exp"]), max_size=2).filter(
        lambda steps: sum(step in DEAR for step in steps) < 2
    ),
    CPUS,
)
def test_any_product_with_constant_weights_gives_onnxruntimes_numbers(
    batch: list[int], rows: int, depth: int, columns: int, epilogue: list[str], cpu: str | None
) -> None:
    weights = {"w": random_array((depth, columns), 1) / np.float32(depth**0.5)}
    nodes, value = [helper.make_node("MatMul", ["x", "w"], ["v"])], "v"
    for number, step in enumerate(epilogue):
        name = f"v{number}"
        if step == "bias":
            weights[f"b{number}"] = random_array((columns,), 2)
            nodes.append(helper.make_node("Add", [value, f"b{number}"], [name]))
        else:
            nodes.append(helper.make_node(step, [value], [name]))
        value = name
    shape = (*batch, rows, depth)
    target = None if cpu is None else Target("llvm", "x86_64-linux-gnu", cpu, (), 2)

    check_against_onnxruntime(
        onnx_model(nodes, {"x": shape}, [value], weights),
        {"x": random_array(shape)},
        target=target,
        near=1e-4 if "Exp" in epilogue else 2e-5,
    )


@settings(max_examples=8)
@given(ROWS, DEPTHS, COLUMNS, st.booleans(), st.booleans())
def test_any_gemm_gives_onnxruntimes_numbers(
    rows: int, depth: int, columns: int, left: bool, right: bool
) -> None:
    shape = (depth, rows) if left else (rows, depth)
    weight = random_array((columns, depth) if right else (depth, columns), 1)
    bias = random_array((columns,), 2)
    model = one_node_model(
        "Gemm", shape, [weight, bias], transA=int(left), transB=int(right), alpha=0.5, beta=2.0
    )

    check_against_onnxruntime(model, {"x": random_array(shape)})


@settings(max_examples=examples(12))
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=2),
    st.integers(1, 33),
    st.integers(1, 33),
    st.integers(1, 33),
    st.booleans(),
)
def test_a_product_of_two_computed_matrices(
    batch: list[int], rows: int, depth: int, columns: int, transposed: bool
) -> None:
    second = (*batch, columns, depth) if transposed else (*batch, depth, columns)
    shapes = {"x": (*batch, rows, depth), "z": second}
    nodes, name = [], "z"
    if transposed:
        order = list(range(len(second)))
        order[-2:] = reversed(order[-2:])
        nodes, name = [helper.make_node("Transpose", ["z"], ["t"], perm=order)], "t"
    nodes.append(helper.make_node("MatMul", ["x", name], ["y"]))
    feeds = {name: random_array(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}

    check_against_onnxruntime(onnx_model(nodes, shapes, ["y"], {}), feeds)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 5, 7)])
@pytest.mark.parametrize("weight", [(7,), (7, 9), (1, 7, 9)])
def test_vectors_and_constant_stacks(shape: tuple[int, ...], weight: tuple[int, ...]) -> None:
    model = one_node_model("MatMul", shape, [random_array(weight, 1)])

    check_against_onnxruntime(model, {"x": random_array(shape)})


def test_a_constant_on_the_left() -> None:
    node = helper.make_node("MatMul", ["w", "x"], ["y"])
    model = onnx_model([node], {"x": (7, 5)}, ["y"], {"w": random_array((9, 7), 1)})

    check_against_onnxruntime(model, {"x": random_array((7, 5))})


@pytest.mark.parametrize("rows", [1, 6])
def test_nan_and_infinity_reach_every_result_of_their_row(rows: int) -> None:
    data = random_array((rows, 40))
    data[0, 3] = np.nan
    data[-1, 39] = np.inf

    check_against_onnxruntime(
        one_node_model("MatMul", data.shape, [random_array((40, 33), 1)]), {"x": data}
    )


def test_dense_layers_are_made_by_the_product_rule() -> None:
    model = one_node_model("MatMul", (5, 40), [random_array((40, 33), 1)])
    compiled = check_against_onnxruntime(model, {"x": random_array((5, 40))})

    assert {rule for _, rule in compiled.rules} == {"product"}


HEADS = st.permutations([0, 1, 2, 3])


@settings(max_examples=examples(15))
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    st.integers(4, 50),
    st.integers(4, 40),
    st.integers(4, 70),
    HEADS,
    HEADS,
    st.sampled_from(["", "Relu", "scale"]),
    CPUS,
)
def test_a_product_of_two_matrices_reads_through_their_transpositions(
    batch: tuple[int, int],
    rows: int,
    depth: int,
    columns: int,
    left: list[int],
    right: list[int],
    epilogue: str,
    cpu: str | None,
) -> None:
    shapes, nodes = {}, []
    for name, order, matrix in (("x", left, (rows, depth)), ("z", right, (depth, columns))):
        given_shape = [0] * 4
        for axis, extent in zip(order, (*batch, *matrix), strict=True):
            given_shape[axis] = extent
        shapes[name] = tuple(given_shape)
        nodes.append(helper.make_node("Transpose", [name], [f"{name}t"], perm=order))
    nodes.append(helper.make_node("MatMul", ["xt", "zt"], ["v"]))
    weights = {}
    if epilogue == "scale":
        weights["s"] = np.float32(0.125)
        nodes.append(helper.make_node("Mul", ["v", "s"], ["y"]))
    elif epilogue:
        nodes.append(helper.make_node(epilogue, ["v"], ["y"]))
    model = onnx_model(nodes, shapes, ["y" if epilogue else "v"], weights)
    feeds = {name: random_array(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    target = None if cpu is None else Target("llvm", "x86_64-linux-gnu", cpu, (), 2)

    compiled = check_against_onnxruntime(model, feeds, target=target, near=1e-4)

    if rows * depth * columns * batch[0] * batch[1] >= 4096 * 4:
        assert [rule for _, rule in compiled.rules] == ["pair"]
