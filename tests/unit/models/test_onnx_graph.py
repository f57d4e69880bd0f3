"""Order, liveness and parameters of ONNX graphs."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edgekit.base.errors import ModelError
from edgekit.models.onnx.graph import captured, in_order, needed
from edgekit.models.onnx.parameters import open_parameters


def chain(length: int) -> list[onnx.NodeProto]:
    return [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=str(i)) for i in range(length)]


def test_sorted_nodes_stay_as_they_are() -> None:
    nodes = chain(4)
    ordered, moved = in_order(nodes)
    assert not moved
    assert [node.name for node in ordered] == ["0", "1", "2", "3"]


@given(st.permutations(range(8)), st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7))))
def test_any_order_of_an_acyclic_graph_is_put_right(
    order: list[int], edges: set[tuple[int, int]]
) -> None:
    earlier = [[a for a, b in edges if b == index and a < index] for index in range(8)]
    nodes = [
        helper.make_node("Sum", ["x", *(f"v{a}" for a in earlier[i])], [f"v{i}"], name=str(i))
        for i in range(8)
    ]
    ordered, _ = in_order([nodes[i] for i in order])
    assert sorted(node.name for node in ordered) == sorted(node.name for node in nodes)
    seen: set[str] = {"x"}
    for node in ordered:
        assert set(node.input) <= seen
        seen.update(node.output)


def test_a_cycle_is_an_error_that_names_a_node() -> None:
    nodes = [
        helper.make_node("Relu", ["b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    with pytest.raises(ModelError, match="cycle through node"):
        in_order(nodes)


def test_only_what_the_outputs_depend_on_is_kept() -> None:
    nodes = [*chain(3), helper.make_node("Relu", ["v1"], ["unused"], name="dead")]
    assert [node.name for node in needed(nodes, ["v2"])] == ["0", "1"]


def branch() -> onnx.GraphProto:
    return helper.make_graph(
        [helper.make_node("Add", ["outer", "own"], ["sum"])],
        "branch",
        [],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [1])],
        [helper.make_tensor("own", TensorProto.FLOAT, [1], [1.0])],
    )


def test_a_subgraphs_captures_count_as_reads() -> None:
    assert captured(branch()) == {"outer"}
    choice = helper.make_node(
        "If", ["flag"], ["y"], then_branch=branch(), else_branch=branch(), name="choice"
    )
    producer = helper.make_node("Relu", ["x"], ["outer"], name="producer")
    ordered, moved = in_order([choice, producer])
    assert moved
    assert [node.name for node in ordered] == ["producer", "choice"]
    assert needed(ordered, ["y"]) == ordered


def parameters_of(nodes: list[onnx.NodeProto], *inputs: str) -> list[tuple[str, bool]]:
    found = open_parameters(nodes, inputs)
    return [(f"{item.operator}: {','.join(item.inputs)}", item.direct) for item in found]


def test_a_parameter_that_is_an_input_is_found() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    assert parameters_of(nodes, "x", "shape") == [("Reshape: shape", True)]


def test_a_parameter_computed_from_inputs_names_them() -> None:
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    assert parameters_of(nodes, "x", "a", "b") == [("Reshape: a,b", False)]


def test_a_parameter_computed_from_a_shape_is_known() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    assert parameters_of(nodes, "x") == []


def test_parameters_inside_branches_are_found() -> None:
    inner = helper.make_graph(
        [helper.make_node("Expand", ["x", "shape"], ["wide"])],
        "branch",
        [],
        [helper.make_tensor_value_info("wide", TensorProto.FLOAT, None)],
    )
    nodes = [helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=inner)]
    assert parameters_of(nodes, "x", "shape", "flag") == [("Expand: shape", True)] * 2


def test_only_the_position_whose_shape_is_read_is_passed_over() -> None:
    nodes = [
        helper.make_node("CastLike", ["count", "x"], ["shape"]),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    assert parameters_of(nodes, "x", "count") == [("Reshape: count", False)]


def test_a_size_that_data_decides_is_told_apart_from_a_parameter() -> None:
    (places,) = open_parameters([helper.make_node("NonZero", ["x"], ["y"])], ["x"])
    (shape,) = open_parameters([helper.make_node("Reshape", ["x", "s"], ["y"])], ["x", "s"])
    assert (places.data, shape.data) == (True, False)


def loop(parameter: str) -> onnx.NodeProto:
    """A loop with a known count whose body reshapes by one of its own inputs."""
    names = ("number", "go", "state")
    body = helper.make_graph(
        [helper.make_node("Expand", ["x", parameter], ["wide"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in names],
        [helper.make_tensor_value_info("wide", TensorProto.FLOAT, None)],
    )
    return helper.make_node("Loop", ["", "", "start"], ["end"], body=body)


def test_the_number_of_a_loops_round_is_known() -> None:
    assert parameters_of([loop("number")], "x", "start") == []


def test_what_a_loop_carries_depends_on_what_it_starts_with() -> None:
    assert parameters_of([loop("state")], "start", "x") == [("Expand: start,x", False)]
