"""Writes the operators of [postprocess]: from the outputs of the model to what they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from edgekit.base.errors import ProjectError
from edgekit.base.tensors import TensorSpec
from edgekit.base.wording import did_you_mean
from edgekit.models.ends.geometry import Size
from edgekit.models.ends.postprocess import Boxes, Classes, Mask, Postprocess, Text
from edgekit.models.onnx.ends.boxes import POINTS, Made, Outputs, write_boxes
from edgekit.models.onnx.ends.nodes import INT32, UINT8, Nodes, of_model

_ORDER = {"retinaface": (4, 2, 2 * POINTS), "corners": (4, None)}
_MASKED = ("yolov8", "yolov5")
"""The ways to decode that take prototypes of masks too."""
"""The columns of the outputs that a way to decode takes, in its order."""


@dataclass(frozen=True)
class Picture:
    """The picture that a model's input shows."""

    size: Size
    """Height and width of the model's input."""
    mapping: tuple[float, float, float, float, float, float]
    """Factor and offset of x, then of y, from the model's input into the picture that the program
    takes, and the width and height of that."""


@dataclass(frozen=True)
class Written:
    """What [postprocess] makes of some outputs."""

    consumed: tuple[str, ...]
    made: Mapping[str, Made]
    """The new outputs by name."""


@singledispatch
def write_back(
    section: Postprocess, nodes: Nodes, specs: Sequence[TensorSpec], picture: Picture | None
) -> Written:
    """Write the nodes for a section."""
    raise NotImplementedError(section)


@write_back.register
def _(
    section: Classes, nodes: Nodes, specs: Sequence[TensorSpec], picture: Picture | None
) -> Written:
    spec = _chosen(specs, section.output)
    count = spec.elements
    if max(spec.shape, default=1) != count:
        raise _unfit(spec, "a vector with a score for each class")
    if len(section.labels) > count:
        raise _labels(spec, count, len(section.labels))
    scores = nodes.reshaped(_real(nodes, spec), 1, count)
    if section.softmax:
        scores = nodes.add("Softmax", scores, axis=1)
    best, places = nodes.top(nodes.reshaped(scores, count), min(section.top, count))
    return Written((spec.name,), _vectors(min(section.top, count), best, nodes.cast(places, INT32)))


@write_back.register
def _(
    section: Boxes, nodes: Nodes, specs: Sequence[TensorSpec], picture: Picture | None
) -> Written:
    if picture is None:
        raise ProjectError(
            "boxes need to know the picture that they are in",
            hint="declare the model's image input in [preprocess.NAME]",
        )
    chosen = _in_order(section, specs)
    values = [_real(nodes, spec) for spec in chosen]
    outputs = Outputs(nodes, values, chosen, section, picture.size)
    return Written(tuple(spec.name for spec in chosen), write_boxes(outputs, picture.mapping))


@write_back.register
def _(section: Mask, nodes: Nodes, specs: Sequence[TensorSpec], picture: Picture | None) -> Written:
    spec = _chosen(specs, section.output)
    shape = spec.shape[1:] if len(spec.shape) > 2 and spec.shape[0] == 1 else spec.shape
    if len(shape) == 2:
        shape = (1, *shape) if section.layout == "NCHW" else (*shape, 1)
    if len(shape) != 3:
        raise _unfit(spec, "a score for each class and pixel")
    axis = 0 if section.layout == "NCHW" else 2
    sides = [extent for place, extent in enumerate(shape) if place != axis]
    if shape[axis] > 256:
        raise _unfit(spec, "at most 256 classes")
    value = nodes.reshaped(_real(nodes, spec), *shape)
    if shape[axis] == 1:
        mask = nodes.add("Greater", value, nodes.constant(section.threshold))
        mask = nodes.reshaped(nodes.cast(mask, UINT8), *sides)
    else:
        mask = nodes.cast(nodes.add("ArgMax", value, axis=axis, keepdims=0), UINT8)
    return Written((spec.name,), {"mask": Made(mask, (sides[0], sides[1]))})


@write_back.register
def _(section: Text, nodes: Nodes, specs: Sequence[TensorSpec], picture: Picture | None) -> Written:
    spec = _chosen(specs, section.output)
    sides = [extent for extent in spec.shape if extent != 1]
    if len(sides) != 2:
        raise _unfit(spec, "a score for each step and character")
    steps, classes = sides
    blanks = int(section.blank >= 0)
    if len(section.labels) != classes - blanks:
        raise _labels(spec, classes - blanks, len(section.labels))
    scores = nodes.reshaped(_real(nodes, spec), steps, classes)
    if section.softmax:
        scores = nodes.add("Softmax", scores, axis=1)
    best = nodes.add("ArgMax", scores, axis=1, keepdims=0)
    made = _vectors(steps, nodes.largest(scores, 1), nodes.cast(best, INT32))
    return Written((spec.name,), made)


def _vectors(count: int, scores: str, classes: str) -> dict[str, Made]:
    return {"scores": Made(scores, (count,)), "classes": Made(classes, (count,))}


def _real(nodes: Nodes, spec: TensorSpec) -> str:
    if spec.quantization is not None and len(spec.quantization.scales) != 1:
        raise _unfit(spec, "one scale, not one for each channel,")
    return nodes.real(of_model(spec.name), spec.dtype, spec.quantization)


def _chosen(specs: Sequence[TensorSpec], name: str | None) -> TensorSpec:
    if name is None:
        if len(specs) == 1:
            return specs[0]
        raise ProjectError(
            f"the model has {len(specs)} outputs, and [postprocess] names none",
            hint=f"add output = NAME with one of {', '.join(spec.name for spec in specs)}",
        )
    found = {spec.name: spec for spec in specs}
    if name not in found:
        raise ProjectError(
            f"[postprocess] names the output {name!r}, which the model does not have",
            hint=did_you_mean(name, found, f"its outputs are {', '.join(found)}"),
        )
    return found[name]


def _in_order(section: Boxes, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return the outputs that a way to decode takes, in its order."""
    wanted = _ORDER.get(section.decode, (None,))
    if section.outputs:
        if section.decode == "ssd":
            wanted = (4, None, None, None)
        most = len(wanted) + (section.decode in _MASKED)
        if len(section.outputs) not in (most, max(1, most - 1)):
            raise ProjectError(
                f'decode = "{section.decode}" takes {len(wanted)} outputs, and [postprocess] names '
                f"{len(section.outputs)}",
                hint="name them in its order; docs/ends.md has it",
            )
        return [_chosen(specs, name) for name in section.outputs]
    if section.decode == "ssd":
        raise ProjectError(
            'decode = "ssd" takes boxes, classes, scores and their number, and [postprocess] names '
            "no outputs",
            hint=f"add outputs = [...] with {', '.join(spec.name for spec in specs)} in that order",
        )
    if len(wanted) == 1:
        boxes = max(specs, key=_rank_of_size)
        return [boxes, *(_prototypes(specs) if section.decode in _MASKED else ())]
    rest, found = list(specs), []
    for columns in wanted:
        fits = [s for s in rest if columns is None or s.shape[-1:] == (columns,)]
        if len(fits) > 1:
            raise ProjectError(
                f"{fits[0].name} and {fits[1].name} could both be what decode = "
                f'"{section.decode}" takes',
                hint="name the outputs in [postprocess], in the order of docs/ends.md",
            )
        if fits:
            found.append(fits[0])
            rest.remove(fits[0])
    if len(found) < 2:
        shapes = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in specs)
        raise ProjectError(
            f'no outputs of the model fit decode = "{section.decode}": it has {shapes}',
            hint="choose another decode in [postprocess], or name the outputs in its order",
        )
    return found


def _prototypes(specs: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
    """Return the output whose channels are parts of masks, if there is one."""
    found = [spec for spec in specs if len(spec.shape) == 4 and spec.shape[0] == 1]
    return found if len(found) == 1 else ()


def _rank_of_size(spec: TensorSpec) -> tuple[bool, int]:
    return len(spec.shape) == 3, math.prod(spec.shape)


def _unfit(spec: TensorSpec, wanted: str) -> ProjectError:
    return ProjectError(
        f"the output {spec.name} has shape {list(spec.shape)}, and [postprocess] needs {wanted}",
        hint="choose another task or output in [postprocess]",
    )


def _labels(spec: TensorSpec, classes: int, labels: int) -> ProjectError:
    return ProjectError(
        f"the output {spec.name} of shape {list(spec.shape)} has {classes} classes to name, and "
        f"[postprocess] has {labels} labels",
        hint="give one label a line, in the order of the classes; an unused one may be empty",
    )
