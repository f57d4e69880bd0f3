"""What a graph says of its ends is found in any graph, broken ones too."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from edgekit.base.tensors import TensorSpec
from edgekit.base.tvm_compat import load_tvm


@pytest.mark.parametrize(("reads", "makes"), [("x", "x"), ("y", "y")])
def test_a_node_that_makes_what_it_reads_ends_the_search(reads: str, makes: str) -> None:
    load_tvm()
    from edgekit.models.onnx.quantised_ends import outputs_with_steps

    tensor = helper.make_tensor_value_info("x", TensorProto.INT8, [3])
    result = helper.make_tensor_value_info(makes, TensorProto.INT8, [3])
    node = helper.make_node("Identity", [reads], [makes])
    graph = helper.make_graph([node], "round", [tensor], [result])

    assert outputs_with_steps(graph, [TensorSpec(makes, "int8", (3,))])[0].quantization is None
