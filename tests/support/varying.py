"""Runs a graph with fixed sizes beside the graph that it was made from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from edgekit.base.shapes import largest
from edgekit.base.tensors import Range
from edgekit.models.onnx.lengths import Fixed, fix

GARBAGE = {"f": np.nan, "i": 0x55555555, "u": 0x55, "b": True}
"""What lies beyond the end of an input, by kind of number."""


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def sizes_to_try(ranges: Mapping[str, Sequence[int | Range]]) -> list[dict[str, int]]:
    """Return the smallest, the largest and some sizes between, by the name of the range."""
    found = {one.name: one for shape in ranges.values() for one in shape if isinstance(one, Range)}
    random = np.random.default_rng(5)
    picks = {
        name: [one.smallest, one.largest, *random.integers(one.smallest, one.largest + 1, 3)]
        for name, one in found.items()
    }
    if len(found) == 1:
        ((name, values),) = picks.items()
        return [{name: int(value)} for value in dict.fromkeys(map(int, values))]
    corners = itertools.product(*(picks[name][:2] for name in picks))
    between = zip(*(picks[name][2:] for name in picks), strict=True)
    return [dict(zip(picks, map(int, values), strict=True)) for values in (*corners, *between)]


def random_input(dtype: Any, shape: Sequence[int], below: int, random: Any) -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 2 if np.dtype(dtype) == bool else below, shape).astype(dtype)


def compared(
    proto: onnx.ModelProto,
    ranges: Mapping[str, Sequence[int | Range]],
    *,
    below: int = 2,
    tolerance: float = 2e-5,
    given: Mapping[str, Any] | None = None,
) -> Fixed:
    """Check that the graph with fixed sizes computes what the model computes, at several sizes."""
    ranges = {name: tuple(shape) for name, shape in ranges.items()}
    fixed = fix(proto, ranges)
    onnx.checker.check_model(fixed.proto)
    for item in (*fixed.proto.graph.input, *fixed.proto.graph.output):
        assert all(dim.HasField("dim_value") for dim in item.type.tensor_type.shape.dim), item
    original, padded = session(proto), session(fixed.proto)
    for sizes in sizes_to_try(ranges):
        random = np.random.default_rng(sum(sizes.values()))
        feeds, fed = {}, {}
        for item in proto.graph.input:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
            shape = ranges.get(item.name) or tuple(
                dim.dim_value for dim in item.type.tensor_type.shape.dim
            )
            true = [sizes[one.name] if isinstance(one, Range) else one for one in shape]
            made = (given or {}).get(item.name)
            feeds[item.name] = (
                random_input(dtype, true, below, random)
                if made is None
                else np.asarray(made(true, random), dtype)
            )
            garbage = GARBAGE[np.dtype(dtype).kind]
            if np.dtype(dtype).kind == "i":
                garbage &= np.iinfo(dtype).max
            buffer = np.full(largest(shape), garbage, dtype)
            buffer[tuple(map(slice, true))] = feeds[item.name]
            fed[item.name] = buffer
            for one in fixed.inputs[item.name]:
                fed[one.length] = np.array(true[one.dimension], np.int64)
        expected = original.run(None, feeds)
        names = [item.name for item in fixed.proto.graph.output]
        found = dict(zip(names, padded.run(names, fed), strict=True))
        for item, want in zip(proto.graph.output, expected, strict=True):
            _check(item.name, want, {**fed, **found}, fixed, sizes, tolerance)
    return fixed


def _check(
    name: str,
    want: np.ndarray,
    found: Mapping[str, np.ndarray],
    fixed: Fixed,
    sizes: Mapping[str, int],
    tolerance: float,
) -> None:
    got = found[name]
    for one in fixed.outputs[name]:
        length = int(found[one.length])
        assert one.smallest <= length <= got.shape[one.dimension]
        got = np.take(got, np.arange(length), axis=one.dimension)
    assert got.shape == want.shape, (name, sizes, got.shape, want.shape)
    assert got.dtype == want.dtype, (name, got.dtype, want.dtype)
    if want.dtype.kind in "fc":
        np.testing.assert_allclose(
            got, want, rtol=tolerance, atol=tolerance, err_msg=f"{name} at {dict(sizes)}"
        )
    else:
        np.testing.assert_array_equal(got, want, err_msg=f"{name} at {dict(sizes)}")


def padded_nodes(fixed: Fixed, operator: str) -> Iterator[onnx.NodeProto]:
    return (node for node in fixed.proto.graph.node if node.op_type == operator)
