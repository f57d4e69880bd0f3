"""Custom operators beside LiteRT, which does not have them: in numpy, as MediaPipe's kernels say.

LiteRT gets a copy of the file without these operators: what they read are outputs of it, and what
they make are inputs. It runs once more for each layer of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.base.arrays import Array
from edgekit.models.tflite.custom_options import (
    LANDMARKS,
    MATRIX,
    MEDIAPIPE,
    SAMPLE,
    SPREAD,
    crop_options,
    spread_options,
)
from edgekit.models.tflite.file import TfliteFile, TfliteGraph


@dataclass(frozen=True)
class CustomOperator:
    name: str
    options: bytes
    inputs: tuple[int, ...]
    output: int
    shape: tuple[int, ...]
    """The shape of its output."""


@dataclass(frozen=True)
class Cut:
    """A file without its custom operators."""

    content: bytes
    layers: tuple[tuple[CustomOperator, ...], ...]
    """The operators, those before that others need."""

    def invoke(self, interpreter: Any) -> None:
        """Run LiteRT and the operators in turn."""
        for layer in self.layers:
            interpreter.invoke()
            for one in layer:
                values = [np.array(interpreter.get_tensor(index)) for index in one.inputs]
                interpreter.set_tensor(one.output, _KERNELS[one.name](one, values))
        interpreter.invoke()


def cut(file: TfliteFile, content: bytes) -> Cut | None:
    """Return the file without MediaPipe's operators; None if it has none."""
    if not any(operator.name in MEDIAPIPE for operator in file.main.operators):
        return None
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    graph = model.subgraphs[0]
    layers = _layers(file.main)
    found: list[list[CustomOperator]] = [[] for _ in range(max(layers.values()))]
    for place, layer in sorted(layers.items()):
        operator, flat = file.main.operators[place], graph.operators[place]
        stored = flat.customOptions
        output = operator.outputs[0]
        found[layer - 1].append(
            CustomOperator(
                operator.name,
                b"" if stored is None else bytes(bytearray(stored)),
                operator.inputs,
                output,
                file.main.tensors[output].shape,
            )
        )
    custom = [one for layer_ in found for one in layer_]
    graph.operators = [one for place, one in enumerate(graph.operators) if place not in layers]
    graph.inputs = [*graph.inputs, *(one.output for one in custom)]
    read = {index: None for one in custom for index in one.inputs if index not in graph.inputs}
    constants = {index for index, one in enumerate(file.main.tensors) if one.is_constant}
    graph.outputs = [*graph.outputs, *(index for index in read if index not in constants)]
    model.signatureDefs = []
    builder = flatbuffers.Builder(len(content) + 4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    return Cut(bytes(builder.Output()), tuple(map(tuple, found)))


def _layers(graph: TfliteGraph) -> dict[int, int]:
    """Return the layer of each custom operator: one more than that of those that it reads from."""
    depth: dict[int, int] = {}
    layers: dict[int, int] = {}
    for place, operator in enumerate(graph.operators):
        before = max((depth.get(index, 0) for index in operator.inputs), default=0)
        if operator.name in MEDIAPIPE:
            before += 1
            layers[place] = before
        depth.update(dict.fromkeys(operator.outputs, before))
    return layers


def _matrix(one: CustomOperator, values: Sequence[Array]) -> Array:
    options = crop_options(one.options)
    points = values[0].reshape(-1, 3).astype("float64")
    across, down = (points[options.right] - points[options.left])[:2]
    turn = options.rotation - np.arctan2(down, across)
    level = _rotation(turn) @ points[list(options.chosen), :2].T
    low, high = level.min(1), level.max(1)
    height, width = options.size
    found = np.eye(4)
    found[:2, :2] = _rotation(-turn) @ np.diag(
        (high - low) * options.scale[::-1] / np.array([width, height])
    )
    centre = _rotation(-turn) @ ((low + high) / 2)
    found[:2, 3] = centre - found[:2, :2] @ np.array([width / 2, height / 2])
    return found.reshape(one.shape).astype("float32")


def _rotation(angle: float) -> Array:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _sample(one: CustomOperator, values: Sequence[Array]) -> Array:
    image, matrix = values[0][0], values[1].reshape(4, 4).astype("float64")
    height, width, channels = image.shape
    made = np.zeros(one.shape, "float32")
    for row, column in np.ndindex(*one.shape[1:3]):
        x, y = matrix[:2, :2] @ (column + 0.5, row + 0.5) + matrix[:2, 3] - 0.5
        if not (0 <= x <= width - 1 and 0 <= y <= height - 1):
            continue
        left, top = int(np.floor(x)), int(np.floor(y))
        total = np.zeros(channels)
        for i, j in np.ndindex(2, 2):
            if top + i < height and left + j < width:
                share = abs(1 - i - (y - top)) * abs(1 - j - (x - left))
                total += share * image[top + i, left + j]
        made[0, row, column] = total
    return made


def _landmarks(one: CustomOperator, values: Sequence[Array]) -> Array:
    points: Array = values[0].reshape(one.shape).copy()
    matrix = values[1].reshape(4, 4)
    points[..., :2] = points[..., :2] @ matrix[:2, :2].T + matrix[:2, 3]
    return points


def _spread(one: CustomOperator, values: Sequence[Array]) -> Array:
    image, weights, bias = values
    options = spread_options(one.options)
    _, rows, columns, _ = weights.shape
    (top, _), (left, _) = (
        options.padding(axis, image.shape[1 + axis], weights.shape[1 + axis]) for axis in (0, 1)
    )
    wide = np.zeros(
        (one.shape[0], one.shape[1] + 2 * rows, one.shape[2] + 2 * columns, one.shape[3])
    )
    for batch, row, column in np.ndindex(*image.shape[:3]):
        at = (row * options.strides[0] - top + rows, column * options.strides[1] - left + columns)
        patch = np.einsum("i,oyxi->yxo", image[batch, row, column], weights)
        wide[batch, at[0] : at[0] + rows, at[1] : at[1] + columns] += patch
    kept: Array = wide[:, rows : rows + one.shape[1], columns : columns + one.shape[2]]
    made: Array = (kept + bias).astype("float32")
    return made


_KERNELS: Mapping[str, Callable[[CustomOperator, Sequence[Array]], Array]] = {
    MATRIX: _matrix,
    SAMPLE: _sample,
    LANDMARKS: _landmarks,
    SPREAD: _spread,
}
