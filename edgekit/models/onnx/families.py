"""Recognise models of known families, and propose their sections of edgekit.toml.

A family is known by its inputs, outputs and last operators, and by what exporters write into the
file. What training decided, such as the mean of pixels, is the usual value of the family.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from edgekit.base.quoting import one_line, toml_string
from edgekit.models.ends.geometry import Size
from edgekit.models.ends.postprocess import MOST_LABELS, Boxes
from edgekit.models.ends.proposal import Proposal
from edgekit.models.model import ModelSource
from edgekit.models.onnx.binding import declared, true_inputs
from edgekit.models.onnx.ends.boxes import POINTS, priors
from edgekit.models.onnx.files import read_structure

Shape = tuple[int | str, ...]

_IMAGENET = ('scale = "1/255"', "mean = [0.485, 0.456, 0.406]", "std = [0.229, 0.224, 0.225]")
_STEPS = (8, 16, 32)
_KEYPOINTS = re.compile(r"\[(\d{1,3}), 3\]")
"""What Ultralytics stores of a pose: x, y and a score for each point."""
_GROWING = ("Resize", "Upsample", "ConvTranspose", "DepthToSpace")
_FEWEST_CHARACTERS = 30


@dataclass(frozen=True)
class _Look:
    """What is seen of a model with one image input."""

    name: str
    layout: str
    size: Size | None
    """The height and width of the input, if the file fixes them."""
    outputs: Mapping[str, Shape]
    last: Mapping[str, str]
    """The operator that makes each output."""
    metadata: Mapping[str, str]
    grows: bool
    """Whether an operator makes a picture larger."""

    def labels(self) -> tuple[str, ...]:
        """Return the labels that Ultralytics and PaddleOCR store in a file."""
        if "character" in self.metadata:
            return tuple(self.metadata["character"].removesuffix("\n").split("\n"))[:MOST_LABELS]
        try:
            names = ast.literal_eval(self.metadata.get("names", ""))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return ()
        values = list(names.values()) if isinstance(names, dict) else names
        if not isinstance(values, (list, tuple)) or len(values) > MOST_LABELS:
            return ()
        return tuple(one_line(str(value)[:1000]) for value in values)


def propose(source: ModelSource) -> Proposal | None:
    """Return what the sections of a model may be; None for a model of no known family."""
    look = _look(read_structure(source.path))
    if look is None:
        return None
    return next((found for family in _FAMILIES if (found := family(look))), None)


def image_input(source: ModelSource) -> str:
    """Return the name of the only input of a recognised model."""
    (item,) = true_inputs(read_structure(source.path).graph)
    return str(item.name)


def _look(model: onnx.ModelProto) -> _Look | None:
    inputs = declared(true_inputs(model.graph))
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        return None
    shape = inputs[0].shape
    if shape[1] in (1, 3):
        layout, sides = "NCHW", shape[2:]
    elif shape[3] in (1, 3):
        layout, sides = "NHWC", shape[1:3]
    else:
        return None
    height, width = sides
    size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    found = declared(list(model.graph.output))
    if any(spec.open_dimensions for spec in found):
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
            found = declared(list(inferred.graph.output))
        except (onnx.shape_inference.InferenceError, ValueError):
            pass  # the declared shapes say less
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    return _Look(
        inputs[0].name,
        layout,
        size,
        {spec.name: spec.shape for spec in found},
        {spec.name: makers.get(spec.name, "") for spec in found},
        {item.key: item.value for item in model.metadata_props},
        any(node.op_type in _GROWING for node in model.graph.node),
    )


def _shown(shape: Sequence[int | str]) -> str:
    return " x ".join(str(extent) for extent in shape)


def _of_rank(look: _Look, rank: int) -> list[tuple[str, Shape]]:
    return [(name, shape) for name, shape in look.outputs.items() if len(shape) == rank]


def _columns(shape: Shape, places: Sequence[int]) -> list[int]:
    return [extent for place in places if isinstance(extent := shape[place], int)]


def _letterbox(look: _Look, *more: str) -> tuple[str, ...]:
    return (f'layout = "{look.layout}"', 'resize = "pad"', *more)


def _yolo(look: _Look) -> Proposal | None:
    """Return the proposal for detectors of Ultralytics, and those with the same outputs."""
    found = _of_rank(look, 3)
    task = look.metadata.get("task")
    points = _KEYPOINTS.fullmatch(look.metadata.get("kpt_shape", "")) if task == "pose" else None
    if not found or (task not in (None, "detect", "segment") and points is None):
        return None
    name, shape = found[0]
    sizes = _columns(shape, (1, 2))
    if len(sizes) != 2:
        # An open size of the picture leaves the number of boxes open.
        if task is None or not isinstance(shape[1], int):
            return None
        sizes = [shape[1], 1 << 30]
    labels, front = look.labels(), _letterbox(look, "fill = 114", 'scale = "1/255"')
    cells = [(look.size[0] // s) * (look.size[1] // s) for s in _STEPS] if look.size else []
    first, second = sizes
    if second == 6 and first <= 1000 and look.last[name] != "Softmax":
        kind, decode = "YOLOv10", "end2end"
    elif 5 <= first < second and (second == sum(cells) or task is not None):
        kind, decode = "YOLOv8", "yolov8"
    elif 6 <= second < first and first == 3 * sum(cells):
        kind, decode = "YOLOv5", "yolov5"
    else:
        return None
    prototypes = _of_rank(look, 4) if task == "segment" and decode != "end2end" else []
    outputs = [name, prototypes[0][0]] if len(prototypes) == 1 else [name]
    listed = ", ".join(toml_string(output) for output in outputs)
    named = () if len(found) == len(look.outputs) == 1 else (f"outputs = [{listed}]",)
    if points is not None:
        named = (*named, f"keypoints = {points[1]}")
    return Proposal(
        f"A detector like {kind}",
        f"its output {name} is {_shown(shape)}",
        front,
        ('task = "boxes"', f'decode = "{decode}"', *named, "score = 0.25", "iou = 0.45"),
        labels,
        "This model has columns for masks: list the labels, then remove the # before each line."
        if task == "segment" and not labels and len(outputs) == 1
        else "",
    )


def _retinaface(look: _Look) -> Proposal | None:
    found = _of_rank(look, 3)
    by_columns = {shape[2]: (name, shape) for name, shape in found}
    if len(found) != 3 or set(by_columns) != {4, 2, 2 * POINTS}:
        return None
    names = [by_columns[columns][0] for columns in (4, 2, 2 * POINTS)]
    boxes = by_columns[4][1][1]
    open_ = ""
    if look.size and boxes != len(priors(Boxes("boxes", "retinaface"), look.size)):
        open_ = "The prior boxes are others than the authors': add steps and sizes, then remove #."
    scores = "false" if look.last[names[1]] == "Softmax" else "true"
    return Proposal(
        "A face detector like RetinaFace",
        "its outputs have 4, 2 and 10 columns: offsets, scores and landmarks",
        _letterbox(look, 'color = "bgr"', "mean = [104, 117, 123]"),
        (
            'task = "boxes"',
            'decode = "retinaface"',
            f"outputs = [{', '.join(map(toml_string, names))}]",
            f"softmax = {scores}",
            "score = 0.5",
            "iou = 0.4",
        ),
        ("face",),
        open_,
    )


def _corners(look: _Look) -> Proposal | None:
    found = sorted(_of_rank(look, 3), key=lambda item: item[1][2] != 4)
    if len(found) != 2 or found[0][1][2] != 4 or found[0][1][1] != found[1][1][1]:
        return None
    (boxes, shape), (scores, _) = found
    return Proposal(
        "A detector with corners and scores",
        f"its outputs are {boxes}, {_shown(shape)}, and {scores}",
        (f'layout = "{look.layout}"', 'resize = "stretch"', "mean = 127", "std = 128"),
        (
            'task = "boxes"',
            'decode = "corners"',
            f"outputs = [{toml_string(boxes)}, {toml_string(scores)}]",
            f"softmax = {'false' if look.last[scores] == 'Softmax' else 'true'}",
            "score = 0.7",
        ),
    )


def _recogniser(look: _Look) -> Proposal | None:
    found = _of_rank(look, 3)
    if len(look.outputs) != 1 or not found:
        return None
    name, shape = found[0]
    classes = shape[2]
    if not isinstance(classes, int) or classes < _FEWEST_CHARACTERS:
        return None
    labels = look.labels()
    is_line = look.size is not None and look.size[1] >= 2 * look.size[0]
    if not (is_line or "character" in look.metadata or (not look.size and classes > 1000)):
        return None
    if labels and len(labels) == classes - 2:
        labels = (*labels, " ")  # PaddleOCR adds it when it trains with spaces
    fits = len(labels) == classes - 1
    file = () if fits else ('labels = "characters.txt"',)
    softmax = "false" if look.last[name] == "Softmax" else "true"
    return Proposal(
        "A text recogniser like PP-OCR's",
        f"its output {name} is {_shown(shape)}: steps and characters",
        _letterbox(
            look,
            'color = "bgr"',
            'anchor = "start"',
            "fill = 127.5",
            'scale = "1/255"',
            "mean = 0.5",
            "std = 0.5",
        ),
        ('task = "text"', f"softmax = {softmax}", *file),
        labels if fits else (),
        ""
        if fits
        else f"Write its {classes - 1} characters into a file, a line each, then remove the #.",
    )


def _mask(look: _Look) -> Proposal | None:
    found = _of_rank(look, 4)
    if not found or len(found) != len(look.outputs):
        return None
    name, shape = found[0]
    place = 1 if look.layout == "NCHW" else 3
    classes, sides = shape[place], (shape[2:] if place == 1 else shape[1:3])
    if not isinstance(classes, int) or not 1 <= classes <= 256:
        return None
    whole = look.size is None or tuple(sides) == look.size
    if not look.grows or not (whole or look.last[name] in _GROWING):
        return None
    output = () if len(found) == 1 else (f"output = {toml_string(name)}",)
    return Proposal(
        "A segmentation of pixels",
        f"its output {name} is {_shown(shape)}",
        (f'layout = "{look.layout}"', 'resize = "stretch"', *_IMAGENET),
        ('task = "mask"', f'layout = "{look.layout}"', *output),
        look.labels(),
    )


def _classifier(look: _Look) -> Proposal | None:
    if len(look.outputs) != 1:
        return None
    ((name, shape),) = look.outputs.items()
    sides = [extent for extent in shape[1:] if extent != 1]
    if len(shape) not in (2, 4) or len(sides) != 1 or not isinstance(sides[0], int):
        return None
    ultralytics = look.metadata.get("task") == "classify"
    front: tuple[str, ...]
    if ultralytics:
        kind, front = "A classifier of Ultralytics", ('scale = "1/255"',)
    elif look.layout == "NCHW":
        kind, front = "A classifier like torchvision's", _IMAGENET
    else:
        kind, front = "A classifier like Keras's", ("mean = 127.5", "std = 127.5")
    labels = look.labels()
    return Proposal(
        kind,
        f"its output {name} has {sides[0]} scores",
        (f'layout = "{look.layout}"', 'resize = "crop"', *front),
        (
            'task = "classes"',
            f"softmax = {'false' if look.last[name] == 'Softmax' else 'true'}",
            f"top = {min(5, sides[0])}",
            *(() if labels else ('# labels = "names.txt"  # a name a line',)),
        ),
        labels if len(labels) <= sides[0] else (),
    )


_FAMILIES: tuple[Callable[[_Look], Proposal | None], ...] = (
    _retinaface,
    _yolo,
    _corners,
    _recogniser,
    _mask,
    _classifier,
)
