"""Branches and loops whose graphs meet a dimension that varies."""

from __future__ import annotations

import pytest
from onnx import parser
from support.varying import compared, padded_nodes

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.tensors import Range
from edgekit.models.onnx.lengths import fix

N = Range(2, 9, "n")


def graph(inputs: str, outputs: str, body: str):
    return parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> main ({inputs}) => ({outputs}) {{ {body} }}'
    )


BRANCHES = """
  y = If (c) <
    then_branch = t () => (float[a, 3] p) { p = Softmax<axis=0>(x) },
    else_branch = e () => (float[a, 3] q) { m = ReduceMean<keepdims=1>(x) q = Sub(x, m) }
  >
"""


def test_a_branch_that_data_decides():
    body = "k = ReduceSum<keepdims=0>(z) o = Constant<value_float=0.0>() c = Less(k, o)"
    model = graph("float[n,3] x, float[2] z", "float[n,3] y", body + BRANCHES)
    for sign in (-1, 1):
        fixed = compared(model, {"x": (N, 3)}, given={"z": lambda shape, random, s=sign: [s, s]})
    assert len(list(padded_nodes(fixed, "If"))) == 1


def test_a_branch_that_sizes_decide_is_written_in_its_place():
    body = "s = Size(x) o = Constant<value_int=3>() c = Less(o, s)"
    fixed = compared(graph("float[n,3] x", "float[n,3] y", body + BRANCHES), {"x": (N, 3)})
    assert not list(padded_nodes(fixed, "If"))


def test_a_branch_that_meets_nothing_that_varies_stays():
    body = (
        "w = Softmax(z) k = ReduceMean<keepdims=0>(x) o = Constant<value_float=0.0>() "
        "c = Less(k, o) v = If (c) < then_branch = t () => (float[2] p) { p = Add(w, k) }, "
        "else_branch = e () => (float[2] q) { q = Sub(w, k) } > y = Add(v, k)"
    )
    fixed = compared(graph("float[n,3] x, float[2] z", "float[2] y", body), {"x": (N, 3)})
    assert len(list(padded_nodes(fixed, "If"))) == 1


LOOP = """
  f = Constant<value_int=0>() l = Shape(x) m = Gather(l, f) go = Constant<value=bool {1}>()
  y, r = Loop (m, go, h) <
    body = b (int64 i, bool g, float[4] s) => (bool w, float[4] t, float[4] u) {
      w = Identity(go) v = Gather<axis=0>(x, i) t = Add(s, v) u = Mul(t, v) }
  >
"""


def test_a_loop_over_a_dimension_that_varies():
    model = graph("float[n,4] x, float[4] h", "float[4] y, float[n,4] r", LOOP)
    fixed = compared(model, {"x": (N, 4)})
    assert [one.smallest for one in fixed.outputs["r"]] == [2]


def test_a_loop_that_data_ends_is_refused():
    body = LOOP.replace("w = Identity(go)", "k = ReduceMax<keepdims=0>(s) w = Less(k, k)")
    model = graph("float[n,4] x, float[4] h", "float[4] y, float[n,4] r", body)
    with pytest.raises(UnsupportedModelError, match="data ends it"):
        fix(model, {"x": (N, 4)})


@pytest.mark.parametrize("way", [0, 1])
def test_a_scan_over_a_dimension_that_varies(way):
    scan = f"""
      y, r = Scan<num_scan_inputs=1, scan_input_directions=[{way}], scan_output_directions=[{way}],
        body = b (float[k] s, float[k] v) => (float[k] t, float[k] u) {{
          d = Softmax(v) t = Add(s, d) u = Mul(t, v) }}>(h, x)
    """
    model = graph("float[n,k] x, float[k] h", "float[k] y, float[n,k] r", scan)
    compared(model, {"x": (N, 4), "h": (4,)})
    k = Range(3, 6, "k")
    compared(model, {"x": (N, k), "h": (k,)})
