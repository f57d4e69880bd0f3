"""The section [postprocess] of a project file: what the outputs of a model mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from edgekit.base.decode import Check, Most, Range
from edgekit.models.preprocess import LARGEST_SIDE

MOST_LABELS = 100_000
MOST_BOXES = 1000

_Share = Annotated[float, Range(0, 1)]
_Steps = Annotated[int, Range(1, LARGEST_SIDE)]
_Text = Annotated[str, Most(1000)]
_Labels = Annotated[tuple[_Text, ...], Most(MOST_LABELS, "labels")]

Decode = Literal["yolov8", "yolov5", "end2end", "retinaface", "corners", "ssd"]


@dataclass(frozen=True)
class Classes:
    """The most likely classes of a picture or a sample."""

    task: Literal["classes"]
    labels: _Labels = ()
    """The name of each class."""
    output: _Text | None = None
    """The output with the scores; None is the only one."""
    softmax: bool = True
    """Whether the model's scores still need a softmax."""
    top: Annotated[int, Range(1, MOST_BOXES)] = 5
    """How many classes the program returns."""


@dataclass(frozen=True)
class Boxes:
    """Boxes around objects, the most likely first, without those that overlap a better one."""

    task: Literal["boxes"]
    decode: Decode
    """How the outputs of the model describe boxes."""
    labels: _Labels = ()
    outputs: tuple[_Text, ...] = ()
    """The outputs that `decode` takes, in its order; empty takes them by their shapes."""
    score: _Share = 0.25
    """The least score of a box."""
    iou: _Share = 0.45
    """The overlap above which the box with the lower score is dropped."""
    most: Annotated[int, Range(1, MOST_BOXES)] = 100
    """How many boxes the program returns; a box with the score 0 is none."""
    candidates: Annotated[int, Range(1, MOST_BOXES)] = 300
    """How many boxes with the best scores are compared with each other."""
    keypoints: Annotated[int, Range(0, MOST_BOXES)] = 0
    """The points of each box of `yolov8`, in columns behind the classes: x, y and a score each."""
    softmax: bool = False
    """Whether the scores of `retinaface` and `corners` still need a softmax."""
    background: bool = True
    """Whether the first class of `retinaface` and `corners` is the background."""
    relative: bool = True
    """Whether the corners of `corners` are shares of the picture, and not pixels."""
    steps: tuple[_Steps, ...] = (8, 16, 32)
    """The distance of the centres of `retinaface`, a level each."""
    sizes: tuple[tuple[_Steps, ...], ...] = ((16, 32), (64, 128), (256, 512))
    """The sizes of the prior boxes of `retinaface`, a level each."""
    variances: Annotated[
        tuple[float, ...], Check("two positive numbers", lambda v: len(v) == 2 and min(v) > 0)
    ] = (0.1, 0.2)

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.sizes):
            raise ValueError("it has another number of steps than of sizes")


@dataclass(frozen=True)
class Mask:
    """The class of each pixel."""

    task: Literal["mask"]
    labels: _Labels = ()
    output: _Text | None = None
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    threshold: float = 0.5
    """The value above which a pixel belongs to the class of a model with one channel."""


@dataclass(frozen=True)
class Text:
    """Characters, one of which each step of the model's output names."""

    task: Literal["text"]
    labels: _Labels
    """The characters in the order of the model's classes, without the blank one."""
    output: _Text | None = None
    blank: Annotated[int, Range(-1, MOST_LABELS)] = 0
    """The class that is no character; -1 if there is none."""
    collapse: bool = True
    """Whether equal neighbours are one character (CTC)."""
    softmax: bool = False


Postprocess: TypeAlias = Classes | Boxes | Mask | Text
