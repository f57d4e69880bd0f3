"""What every backend promises, for Tern: python -m pytest test_tern.py"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from edgekit.testing.backend_contract import BackendContract
from edgekit.testing.operators import Case

SMALL = st.integers(1, 5)


@st.composite
def residuals(draw: Callable[..., Any]) -> Case:
    """A convolution, and a second one whose result is added to that of the first."""
    groups, channels = draw(st.sampled_from((1, 2))), 2 * draw(SMALL)
    rows, columns = draw(st.integers(3, 9)), draw(st.integers(3, 9))
    case = Case([(draw(st.integers(1, 2)), 3, rows, columns)], seed=draw(st.integers(0, 999)))
    window = {"strides": [draw(st.integers(1, 2)), 1], "pads": [1, 0, 2, 1]}
    first = [case.weight(channels, 3, 3, 2), case.weight(channels)]
    value = case.node("Relu", [case.node("Conv", ["x0", *first], **window)])
    second = case.weight(channels, channels // groups, 3, 3)
    made = case.node("Conv", [value, second], pads=[1] * 4, group=groups)
    case.node("Relu", [case.node("Add", [made, value])])
    return case


@st.composite
def classifiers(draw: Callable[..., Any]) -> Case:
    """A convolution, then two dense layers."""
    size, classes = draw(st.integers(2, 7)), draw(st.integers(1, 20))
    case = Case([(1, 2, size, size)], seed=draw(st.integers(0, 999)))
    made = case.node("Conv", ["x0", case.weight(4, 2, 1, 1)])
    flat = case.node("Flatten", [case.node("Relu", [made])])
    hidden = [case.weight(4 * size * size, 8), case.weight(8)]
    value = case.node("Relu", [case.node("Gemm", [flat, *hidden])])
    case.node("MatMul", [value, case.weight(8, classes)])
    return case


class TestTern(BackendContract):
    backend = "tern"
    families = {"residuals": residuals, "classifiers": classifiers}  # noqa: RUF012
    examples = 4
