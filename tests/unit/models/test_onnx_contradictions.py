"""What is said of dimensions that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.models.onnx.contradictions import contradiction

SHAPES: dict[str, tuple[list[tuple[int, ...] | None], dict[str, Any], tuple[int, int] | None]] = {
    "MatMul": ([(2, 3, 5), (4, 6)], {}, (5, 4)),
    "MatMul that fits": ([(2, 3, 4), (4, 6)], {}, None),
    "MatMul of a vector": ([(2, 4), (4,)], {}, None),
    "Gemm turned": ([(5, 3), (7, 4)], {"transA": 1, "transB": 1}, (5, 4)),
    "Conv": ([(1, 3, 8, 8), (4, 2, 3, 3), None], {}, (3, 2)),
    "Conv in groups": ([(1, 4, 8, 8), (4, 2, 3, 3)], {"group": 2}, None),
    "LSTM": ([(10, 1, 40), (1, 512, 64), (1, 512, 128)], {}, (40, 64)),
    "LSTM with a state": (
        [(10, 2, 64), (1, 512, 64), (1, 512, 128), None, None, (1, 1, 128)],
        {},
        (2, 1),
    ),
    "Add": ([(2, 3, 4), (3, 1), (5, 4)], {}, (3, 5)),
    "Concat": ([(1, 3, 8), (1, 4, 9)], {"axis": 1}, (8, 9)),
    "BatchNormalization": ([(1, 3, 8, 8), (4,), (4,), (4,), (4,)], {}, (3, 4)),
    "Concat of nothing": ([], {}, None),
    "Concat along a list": ([(1, 3), (1, 4)], {"axis": (1,)}, (3, 4)),
    "Conv in lists": ([(1, 3, 8, 8), (4, 2, 3, 3)], {"group": (1, 2)}, (3, 2)),
    "Relu": ([(1, 2)], {}, None),
}


@pytest.mark.parametrize("case", SHAPES)
def test_the_two_dimensions_are_named(case: str) -> None:
    shapes, attributes, expected = SHAPES[case]
    names = [f"t{place}" for place in range(len(shapes))]
    said = contradiction(case.partition(" ")[0], names, shapes, attributes)
    if expected is None:
        assert said is None
        return
    assert said is not None
    one, other = expected
    assert f" is {one}, and" in said
    assert f" is {other}; they have to be equal" in said
    assert "'t" in said


def test_inputs_of_different_ranks_are_named() -> None:
    said = contradiction("Concat", ["a", "b"], [(1, 2, 3), (3,)], {"axis": 1})

    assert said == "'a' [1, 2, 3] has 3 dimensions, and 'b' [3] has 1; they need equally many"
