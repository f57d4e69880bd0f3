"""Graphs whose sizes vary, written with fixed sizes: the same numbers, with garbage as padding."""

from __future__ import annotations

import pytest
from onnx import parser
from support.varying import compared

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.tensors import Range, Varying
from edgekit.models.onnx.lengths import fix

N = Range(1, 9, "n")


def graph(inputs: str, outputs: str, body: str, opset: int = 18):
    return parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]> main ({inputs}) => ({outputs}) {{ {body} }}'
    )


def test_elements_keep_their_places():
    fixed = compared(
        graph("float[1,n,4] x, float[n,4] z", "float[1,n,4] y", "a = Add(x, z) y = Relu(a)"),
        {"x": (1, N, 4), "z": (N, 4)},
    )
    assert fixed.inputs["x"] == (Varying(1, 1, "length_n"),)
    assert fixed.outputs["y"] == (Varying(1, 1, "length_n"),)
    assert [node.op_type for node in fixed.proto.graph.node] == ["Add", "Relu"]


def test_an_operator_without_a_rule_is_refused():
    with pytest.raises(UnsupportedModelError, match=r"Det .node 'y'.*no rule") as caught:
        fix(graph("float[n,4,4] x", "float[n] y", "y = Det(x)"), {"x": (N, 4, 4)})
    assert "--shape" in str(caught.value.hint) or "shapes" in str(caught.value.hint)


def test_dimensions_that_may_differ_do_not_meet():
    with pytest.raises(UnsupportedModelError, match="a dimension of n with one of m"):
        fix(
            graph("float[n] x, float[m] z", "float[k] y", "y = Add(x, z)"),
            {"x": (N,), "z": (Range(1, 9, "m"),)},
        )


@pytest.mark.parametrize(
    ("inputs", "body", "said"),
    [
        ("float[3,4] x, float[n] w", "y = LayerNormalization<axis=1>(x, w)", "a dimension of"),
        ("float[1,2,8] x, float[n,2,3] w", "y = Conv(x, w)", "no rule where its input 'w' varies"),
        ("float[n,4] x, int64[2,1] i", "y = GatherND<batch_dims=1>(x, i)", "its batches differ"),
        ("float[5,3,2] x, int64[n] l", "y = ReverseSequence(x, l)", "not as many as its sequences"),
        ("float[3,4] x, float[n] w", "y = Add(x, w)", "joins a dimension of 4 with one of n"),
        ("float[n,4] x", "s = Constant<value_ints=[6, 2]>() y = Reshape(x, s)", "12 elements"),
    ],
)
def test_another_input_that_varies_is_refused(inputs, body, said):
    """Such an operator would compute with padding where the model broadcasts or fails."""
    model = graph(inputs, "float y", body)
    ranges = {
        item.name: tuple(
            Range(1, dim.dim_value or 9, "n") if dim.dim_param else dim.dim_value
            for dim in item.type.tensor_type.shape.dim
        )
        for item in model.graph.input
    }
    with pytest.raises(UnsupportedModelError, match=said):
        fix(model, ranges)
