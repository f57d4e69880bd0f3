"""Detection: pictures, and a JSON of COCO with the boxes in them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from edgekit.base.decode import Check, DecodeError, decode
from edgekit.base.errors import InputError, MissingToolError
from edgekit.base.json_reader import JsonError, read_json_object
from edgekit.models.ends.geometry import Placement, placement
from edgekit.models.ends.postprocess import Boxes
from edgekit.models.ends.reading import meaning
from edgekit.models.images import open_image
from edgekit.verbs.evaluation.report import Figure
from edgekit.verbs.evaluation.task import Item, Outputs, file_samples

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import InputEntry
    from edgekit.bundle.samples import Sample
    from edgekit.models.ends.reading import Finding

ANNOTATIONS, IMAGES = "annotations.json", "images"
_LARGEST = 1 << 30
_LIKE = 0.5
"""The overlap from which two boxes are one."""

_Box = Annotated[tuple[float, ...], Check("four numbers", lambda box: len(box) == 4)]


@dataclass(frozen=True)
class Picture:
    """An entry of `images`."""

    id: int
    file_name: str


@dataclass(frozen=True)
class Category:
    id: int
    name: str


@dataclass(frozen=True)
class Annotation:
    """A box in a picture: its left, top, width and height."""

    image_id: int
    category_id: int
    bbox: _Box
    area: float | None = None
    iscrowd: int = 0


@dataclass(frozen=True)
class Annotations:
    images: tuple[Picture, ...]
    categories: tuple[Category, ...]
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True)
class Detection:
    """A data set for a model that finds boxes."""

    items: tuple[Item, ...]
    inputs: tuple[InputEntry, ...]
    section: Boxes
    known: Annotations = field(repr=False)
    categories: Mapping[int, int]
    """The category of each class of the model that the data set has."""

    @property
    def figures(self) -> Mapping[str, Figure]:
        return {
            "map": Figure("mAP, IoU from 0.50 to 0.95"),
            "map50": Figure("mAP, IoU of 0.50"),
            "map75": Figure("mAP, IoU of 0.75"),
        }

    @property
    def likeness(self) -> tuple[str, Figure]:
        return "agreement", Figure("boxes that the model has too")

    def samples(self, items: Sequence[Item]) -> Iterator[Sample]:
        return file_samples(items, self.inputs)

    def judge(self, item: Item, outputs: Outputs) -> list[Any]:
        """Return the picture, and the category, score, left, top, width and height of each box."""
        rows = []
        for one in self._found(outputs, self._place(item)):
            assert one.box is not None
            left, top, right, bottom = one.box
            if one.index in self.categories:
                category = self.categories[one.index]
                rows.append([category, one.score, left, top, right - left, bottom - top])
        return [item.label, rows]

    def compare(self, outputs: Outputs, expected: Outputs) -> float:
        """Return twice the boxes of both over the sum of all."""
        found, others = self._found(outputs, None), list(self._found(expected, None))
        total, both = len(found) + len(others), 0
        for one in found:
            alike = [other for other in others if other.index == one.index]
            best = max(alike, key=lambda other: _overlap(one, other), default=None)
            if best is not None and _overlap(one, best) >= _LIKE:
                others.remove(best)
                both += 1
        return 2 * both / total if total else 1.0

    def summarise(self, judged: Sequence[Any]) -> Mapping[str, float]:
        boxes = np.array([[image, *row] for image, rows in judged for row in rows], np.float64)
        if not boxes.size:
            return dict.fromkeys(self.figures, 0.0)
        # Picture, box, score and category are the columns that COCO has.
        return _average_precision(self.known, boxes[:, [0, 3, 4, 5, 6, 2, 1]])

    def _found(self, outputs: Outputs, place: Placement | None) -> tuple[Finding, ...]:
        if missing := [name for name in ("boxes", "scores", "classes") if name not in outputs]:
            raise InputError(
                f"the model that runs beside the device has no output {missing[0]!r}",
                hint="name a model whose outputs have the names of the bundle's",
            )
        return meaning(self.section, outputs, place).found

    def _place(self, item: Item) -> Placement | None:
        """Return how the picture lies in the one that the program takes."""
        (entry,) = [one for one in self.inputs if one.spec.state is None]
        assert entry.preprocess is not None
        image = open_image(item.path)
        height, width, _ = entry.spec.shape
        return placement(entry.preprocess, (image.height, image.width), (height, width))


def detection(bundle: Bundle, data: Path) -> Detection:
    """Read the boxes of a data set; InputError if they do not fit the bundle."""
    section, inputs = bundle.manifest.postprocess, bundle.manifest.inputs
    pictures = [entry.preprocess for entry in inputs if entry.spec.state is None]
    prepared = len(pictures) == 1 and pictures[0] is not None and pictures[0].on == "board"
    if not isinstance(section, Boxes) or not prepared:
        raise InputError(
            f"{bundle.path.name} does not turn a picture into boxes",
            hint='declare [preprocess] on = "board", and [postprocess] with task = "boxes", in '
            "edgekit.toml, and build again: `edgekit init` proposes both",
        )
    _need_pycocotools()
    known = read_annotations(data)
    folder = data / IMAGES if (data / IMAGES).is_dir() else data
    items = []
    for one in known.images:
        path = folder / one.file_name
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            raise InputError(
                f"{ANNOTATIONS} names {one.file_name}, which is no file in {folder}",
                hint=f"put the pictures into {IMAGES} beside it",
            )
        items.append(Item(one.file_name, path, one.id))
    return Detection(tuple(items), inputs, section, known, _categories(section, known))


def read_annotations(data: Path) -> Annotations:
    """Read the parts of a JSON of COCO that boxes need."""
    path = data / ANNOTATIONS
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path} is too large", hint="evaluate a part of the data")
        document = read_json_object(path.read_bytes())
        known = decode(Annotations, document, ignore_unknown=True)
    except OSError as error:
        raise InputError(
            f"{path} can't be read: {error.strerror}", hint="docs/evaluate.md has the layouts"
        ) from error
    except (JsonError, DecodeError) as error:
        raise InputError(
            f"{path} holds no boxes as COCO writes them: {error}",
            hint="it needs images, categories and annotations",
        ) from error
    pictures, kinds = {one.id for one in known.images}, {one.id for one in known.categories}
    lost = [a for a in known.annotations if {a.image_id} - pictures or {a.category_id} - kinds]
    if lost or len(pictures) < len(known.images) or not pictures or not kinds:
        raise InputError(
            f"{path} has boxes of unknown pictures or categories, two pictures with one number, or "
            "no pictures",
            hint="write it as COCO describes",
        )
    return known


def _categories(section: Boxes, known: Annotations) -> dict[int, int]:
    """Return categories by classes: by their labels, or without any by the order of numbers."""
    if not section.labels:
        numbers = sorted(one.id for one in known.categories)
        return dict(enumerate(numbers))
    numbers_of = {one.name: one.id for one in known.categories}
    found = {i: numbers_of[name] for i, name in enumerate(section.labels) if name in numbers_of}
    if not found:
        raise InputError(
            f"no category of {ANNOTATIONS} is a label of the model: {sorted(numbers_of)[0]!r}",
            hint="use the same names in `labels` of [postprocess]",
        )
    return found


def _overlap(one: Finding, other: Finding) -> float:
    assert one.box is not None and other.box is not None
    a, b = np.array(one.box).reshape(2, 2), np.array(other.box).reshape(2, 2)
    sides = np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])
    both = float(np.prod(sides.clip(0)))
    union = float(np.prod(a[1] - a[0]) + np.prod(b[1] - b[0])) - both
    return both / union if union else 0.0


def _average_precision(known: Annotations, boxes: np.ndarray) -> dict[str, float]:
    """Return the figures of COCO's own evaluation, which prints what it does."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    right = COCO()
    right.dataset = {
        "info": {},
        "images": [{"id": one.id} for one in known.images],
        "categories": [{"id": one.id, "name": one.name} for one in known.categories],
        "annotations": [
            {
                "id": number,
                "image_id": one.image_id,
                "category_id": one.category_id,
                "bbox": list(one.bbox),
                "area": one.bbox[2] * one.bbox[3] if one.area is None else one.area,
                "iscrowd": one.iscrowd,
            }
            for number, one in enumerate(known.annotations, 1)
        ],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        right.createIndex()
        judged = COCOeval(right, right.loadRes(boxes), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    # It says -1 where there is no box to be found.
    return dict(zip(("map", "map50", "map75"), map(float, judged.stats[:3]), strict=True))


def _need_pycocotools() -> None:
    try:
        import pycocotools.cocoeval  # noqa: F401
    except ImportError as error:
        raise MissingToolError(
            "the mAP of COCO is computed by pycocotools, which is not installed",
            hint="pip install 'edgekit[coco]'",
        ) from error
