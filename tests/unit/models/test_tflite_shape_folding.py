"""Shape arithmetic done at import gives what LiteRT gives when it runs the same operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tflite
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from support.tflite_models import Op, T, constant, tflite_bytes

from edgekit.models.tflite.shapes import FOLDS, MAX_FOLDED_ELEMENTS, fold

SHAPE = np.array([2, 5, 7, 3], "int32")
TABLE = np.arange(24, dtype="int32").reshape(2, 3, 4)
ONE = np.array([1], "int32")


def whole(*values: int) -> np.ndarray:
    return np.array(values, "int32")


def slicing(**masks: int) -> dict[str, Any]:
    return {"table": "StridedSliceOptions", **masks}


def reducing(keep: bool) -> dict[str, Any]:
    return {"table": "ReducerOptions", "keepDims": keep}


def packing(axis: int) -> dict[str, Any]:
    return {"table": "PackOptions", "valuesCount": 2, "axis": axis}


COMPARED = ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
Example = tuple[str, Sequence[np.ndarray], dict[str, Any]]
EXAMPLES: list[Example] = [
    ("STRIDED_SLICE", [SHAPE, whole(1), whole(3), ONE], slicing()),
    ("STRIDED_SLICE", [SHAPE, whole(1), whole(3), ONE], slicing(beginMask=1)),
    ("STRIDED_SLICE", [SHAPE, whole(1), whole(3), ONE], slicing(endMask=1)),
    ("STRIDED_SLICE", [SHAPE, whole(-1), whole(0), ONE], slicing(shrinkAxisMask=1)),
    ("STRIDED_SLICE", [SHAPE, whole(3), whole(0), whole(-2)], slicing(endMask=1)),
    ("STRIDED_SLICE", [TABLE, whole(0, 1), whole(2, 2), whole(1, 1)], slicing(shrinkAxisMask=2)),
    ("SLICE", [SHAPE, whole(1), whole(2)], {}),
    ("SLICE", [SHAPE, whole(1), whole(-1)], {}),
    ("SLICE", [TABLE, whole(0, 1, 2), whole(-1, 2, 1)], {}),
    ("PACK", [SHAPE, SHAPE + 1], packing(0)),
    ("PACK", [SHAPE, SHAPE + 1], packing(1)),
    ("CONCATENATION", [SHAPE, ONE], {"table": "ConcatenationOptions", "axis": 0}),
    ("CONCATENATION", [TABLE, TABLE + 1], {"table": "ConcatenationOptions", "axis": 2}),
    ("GATHER", [SHAPE, whole(3, 0)], {"table": "GatherOptions", "axis": 0}),
    ("GATHER", [TABLE, whole(2, 0)], {"table": "GatherOptions", "axis": 1}),
    ("CAST", [SHAPE], {"table": "CastOptions", "inDataType": 2, "outDataType": 4}),
    ("REDUCE_PROD", [SHAPE, whole(0)], reducing(False)),
    ("REDUCE_PROD", [TABLE + 1, whole(0, 2)], reducing(True)),
    ("RESHAPE", [TABLE, whole(4, -1)], {"table": "ReshapeOptions"}),
    ("SQUEEZE", [TABLE[:1, :, :1]], {"table": "SqueezeOptions", "squeezeDims": [2]}),
    ("SQUEEZE", [TABLE[:1, :, :1]], {"table": "SqueezeOptions"}),
    ("EXPAND_DIMS", [SHAPE, np.int32(0)], {}),
    ("EXPAND_DIMS", [SHAPE, np.int32(-1)], {}),
    ("ADD", [SHAPE, ONE], {"table": "AddOptions"}),
    ("SUB", [SHAPE, whole(4)], {"table": "SubOptions"}),
    ("MUL", [SHAPE, whole(-3)], {"table": "MulOptions"}),
    ("FLOOR_DIV", [SHAPE - 4, whole(2)], {"table": "FloorDivOptions"}),
    ("MAXIMUM", [SHAPE, whole(4)], {}),
    ("MINIMUM", [SHAPE, whole(4)], {}),
    *((name, [SHAPE, whole(3)], {}) for name in COMPARED),
    *((name, [SHAPE > 2, np.array([True])], {}) for name in ("LOGICAL_AND", "LOGICAL_OR")),
    ("LOGICAL_NOT", [SHAPE > 2], {}),
]


def operator_of(content: bytes) -> tflite.Operator:
    return tflite.Model.GetRootAsModel(content, 0).Subgraphs(0).Operators(0)


def litert(content: bytes, values: Sequence[np.ndarray]) -> np.ndarray:
    interpreter = Interpreter(
        model_content=content,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    (data,) = interpreter.get_input_details()
    interpreter.set_tensor(data["index"], values[0])
    interpreter.invoke()
    (result,) = interpreter.get_output_details()
    return np.asarray(interpreter.get_tensor(result["index"]))


def model_of(name: str, values: Sequence[np.ndarray], options: dict[str, Any]) -> bytes:
    tensors = [T("v0", np.shape(values[0]), values[0].dtype.name)]
    tensors += [constant(f"v{i}", value) for i, value in enumerate(values[1:], 1)]
    is_flag = name in COMPARED or name.startswith("LOGICAL")
    kind = "int64" if name == "CAST" else "bool" if is_flag else "int32"
    names = tuple(tensor.name for tensor in tensors)
    return tflite_bytes(
        [*tensors, T("r", (), kind)], [Op(name, names, ("r",), options)], ["v0"], ["r"]
    )


@pytest.mark.parametrize(("name", "values", "options"), EXAMPLES)
def test_folding_gives_what_litert_gives(
    name: str, values: Sequence[np.ndarray], options: dict[str, Any]
) -> None:
    content = model_of(name, values, options)
    expected = litert(content, values)

    found = fold(name, operator_of(content), [np.asarray(value) for value in values])

    assert found is not None
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


def test_every_fold_is_tested() -> None:
    assert {name for name, _, _ in EXAMPLES} == set(FOLDS)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("ADD", np.ones(3, "float32")),
        ("ADD", np.ones(MAX_FOLDED_ELEMENTS + 1, "int32")),
        ("EXP", np.ones(3, "int32")),
    ],
    ids=["real numbers", "data", "another operator"],
)
def test_what_is_no_shape_is_left_to_the_compiler(name: str, first: np.ndarray) -> None:
    operator = operator_of(model_of("ADD", [SHAPE, ONE], {"table": "AddOptions"}))

    assert fold(name, operator, [first, first[:1]]) is None


@pytest.mark.parametrize("mask", ["ellipsisMask", "newAxisMask"])
def test_a_slice_in_a_form_that_shapes_never_take_is_refused(mask: str) -> None:
    content = model_of("STRIDED_SLICE", [SHAPE, whole(0), whole(2), ONE], slicing(**{mask: 1}))

    with pytest.raises(ValueError, match="not supported"):
        fold("STRIDED_SLICE", operator_of(content), [SHAPE, whole(0), whole(2), ONE])
