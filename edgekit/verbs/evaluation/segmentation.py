"""Segmentation: pictures, and for each a mask whose pixels are classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.base.arrays import Array
from edgekit.base.errors import InputError
from edgekit.models.ends.geometry import Size
from edgekit.models.ends.postprocess import Mask
from edgekit.models.images import IMAGE_SUFFIXES, image_extent, open_image, place_mask
from edgekit.models.preprocess import Preprocess
from edgekit.verbs.evaluation.report import Figure
from edgekit.verbs.evaluation.task import (
    Item,
    Outputs,
    file_samples,
    files_in,
    output_of,
    own_outputs,
)

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import InputEntry
    from edgekit.bundle.samples import Sample

IGNORED = 255
"""The value of pixels that count for nothing."""
IMAGES, MASKS = "images", "masks"


@dataclass(frozen=True)
class Segmentation:
    """A data set for a model that says which class a pixel has."""

    items: tuple[Item, ...]
    inputs: tuple[InputEntry, ...]
    output: str
    axis: int | None
    """The axis of the classes' scores; None if the output holds classes."""
    size: Size
    """Height and width of the output."""

    @property
    def figures(self) -> Mapping[str, Figure]:
        return {
            "miou": Figure("intersection over union, mean of the classes"),
            "f1": Figure("F1, mean of the classes"),
            "pixels": Figure("right pixels"),
        }

    @property
    def likeness(self) -> tuple[str, Figure]:
        return "agreement", Figure("pixels with the same class as the model")

    def samples(self, items: Sequence[Item]) -> Iterator[Sample]:
        return file_samples(items, self.inputs)

    def judge(self, item: Item, outputs: Outputs) -> list[list[int]]:
        """Return the right class, the class that was found, and their pixels, for each pair."""
        labels, found = self._labels(item), self._classes(outputs)
        counts = labels != IGNORED
        pairs = np.stack([labels[counts], found[counts]])
        unique, pixels = np.unique(pairs, axis=1, return_counts=True)
        return [[int(number) for number in row] for row in np.vstack([unique, pixels]).T]

    def compare(self, outputs: Outputs, expected: Outputs) -> float:
        return float((self._classes(outputs) == self._classes(expected)).mean())

    def summarise(self, judged: Sequence[Sequence[Sequence[int]]]) -> Mapping[str, float]:
        both: Counter[int] = Counter()
        labels: Counter[int] = Counter()
        found: Counter[int] = Counter()
        for label, guess, pixels in (row for one in judged for row in one):
            labels[label] += pixels
            found[guess] += pixels
            both[label] += pixels * (label == guess)
        if not labels:
            raise InputError("all pixels of all masks are ignored", hint=f"{IGNORED} means that")
        classes = sorted({*labels, *found})
        sums = {name: labels[name] + found[name] for name in classes}
        return {
            "miou": float(np.mean([both[name] / (sums[name] - both[name]) for name in classes])),
            "f1": float(np.mean([2 * both[name] / sums[name] for name in classes])),
            "pixels": both.total() / labels.total(),
        }

    def _classes(self, outputs: Outputs) -> Array:
        values = output_of(outputs, self.output)
        if self.axis is None:
            return np.rint(values).astype(np.int64).reshape(self.size)
        extents = [extent for extent in values.shape if extent != 1]
        return np.asarray(values.reshape(extents).argmax(axis=self.axis))

    def _labels(self, item: Item) -> Array:
        """Return a mask as the model sees its picture, in the size of the output."""
        assert item.further is not None
        mask = open_image(item.further)
        if mask.mode not in ("L", "P", "1"):
            raise InputError(
                f"{item.further} is a picture in color, and no mask",
                hint=f"write the number of a class in each pixel, and {IGNORED} where none counts",
            )
        labels = np.asarray(mask, np.uint8)
        (entry,) = [one for one in self.inputs if one.spec.state is None]
        how = entry.preprocess
        if how is None or item.path.suffix.lower() not in IMAGE_SUFFIXES:
            return place_mask(labels, Preprocess("NCHW", resize="stretch"), self.size, IGNORED)
        if how.on == "board":
            seen: Size = (entry.spec.shape[0], entry.spec.shape[1])
        else:
            seen = image_extent(entry.spec, how)
        return place_mask(place_mask(labels, how, seen, IGNORED), how, self.size, IGNORED)


def segmentation(bundle: Bundle, data: Path) -> Segmentation:
    """Pair pictures with masks; InputError if they do not fit the bundle."""
    inputs = bundle.manifest.inputs
    if len([entry for entry in inputs if entry.spec.state is None]) != 1:
        raise InputError(
            f"{bundle.path.name} takes several inputs, and a picture is one",
            hint="evaluate models of one picture",
        )
    images = files_in(data / IMAGES, (*IMAGE_SUFFIXES, ".npy"))
    masks = {path.stem: path for path in files_in(data / MASKS, (".png",))}
    lonely = [path.name for path in images if path.stem not in masks]
    if lonely or not images:
        raise InputError(
            f"{data / MASKS} has no mask for {lonely[0]}" if lonely else f"{data} has no pictures",
            hint=f"write {IMAGES}/NAME.jpg and {MASKS}/NAME.png for each",
        )
    items = tuple(Item(path.name, path, None, masks[path.stem]) for path in images)
    specs = own_outputs(bundle)
    if isinstance(bundle.manifest.postprocess, Mask):
        specs = [spec for spec in specs if spec.name == "mask"]
    spec, extents = specs[0], [extent for extent in specs[0].shape if extent != 1]
    scores = len(extents) == 3
    classes = len(extents) == 2 and spec.dtype[0] in "iu" and spec.quantization is None
    if len(specs) != 1 or not (scores or classes):
        listed = ", ".join(str(spec) for spec in specs)
        raise InputError(
            f"{bundle.path.name} returns {listed}, where no class of each pixel can be read",
            hint='declare [postprocess] with task = "mask" in edgekit.toml, and build again',
        )
    axis = _axis(extents, inputs) if scores else None
    height, width = extents[:2] if axis == 2 else extents[-2:]
    return Segmentation(items, inputs, spec.name, axis, (height, width))


def _axis(extents: Sequence[int], inputs: Sequence[InputEntry]) -> int:
    """Return where the classes are: as in the picture, or else the shorter end."""
    layouts = [entry.preprocess.layout for entry in inputs if entry.preprocess]
    return 0 if (layouts[0] == "NCHW" if layouts else extents[0] < extents[-1]) else 2
