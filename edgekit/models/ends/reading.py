"""Reads the outputs of a program with [postprocess]: names, boxes, a mask or text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from edgekit.base.arrays import Array
from edgekit.models.ends.geometry import Placement
from edgekit.models.ends.postprocess import Boxes, Classes, Mask, Postprocess, Text


@dataclass(frozen=True)
class Finding:
    """A class, and the box around it if it has a place."""

    index: int
    """The number of the class."""
    name: str
    """Its label, or its number without one."""
    score: float
    """The score; for a mask, the share of the pixels."""
    box: tuple[float, ...] | None = None
    """x1, y1, x2, y2 in pixels of the image, or of the program's picture without one."""
    landmarks: tuple[float, ...] | None = None
    """Pairs of x and y."""


@dataclass(frozen=True)
class Meaning:
    """What the outputs of one inference mean."""

    task: str
    found: tuple[Finding, ...] = ()
    text: str | None = None

    def summary(self) -> str:
        """Return it in one line."""
        if self.text is not None:
            return self.text
        return ", ".join(f"{one.name} {one.score:.3g}" for one in self.found) or "nothing"


@singledispatch
def meaning(section: Postprocess, outputs: Mapping[str, Array], place: Placement | None) -> Meaning:
    """Read outputs; `place` is that of the image in the program's picture."""
    raise NotImplementedError(section)


@meaning.register
def _(section: Classes, outputs: Mapping[str, Array], place: Placement | None) -> Meaning:
    pairs = zip(outputs["classes"].tolist(), outputs["scores"].tolist(), strict=True)
    found = (Finding(index, label(section, index), score) for index, score in pairs)
    return Meaning(section.task, tuple(found))


@meaning.register
def _(section: Boxes, outputs: Mapping[str, Array], place: Placement | None) -> Meaning:
    scores = outputs["scores"]
    found = []
    for row in np.flatnonzero(scores > 0):
        index = int(outputs["classes"][row])
        marks = outputs.get("landmarks")
        found.append(
            Finding(
                index,
                label(section, index),
                float(scores[row]),
                _in_image(outputs["boxes"][row], place),
                None if marks is None else _in_image(marks[row], place),
            )
        )
    return Meaning(section.task, tuple(found))


@meaning.register
def _(section: Mask, outputs: Mapping[str, Array], place: Placement | None) -> Meaning:
    counts = np.bincount(outputs["mask"].reshape(-1))
    order = np.argsort(-counts, kind="stable")
    found = (
        Finding(int(i), label(section, int(i)), float(counts[i] / counts.sum()))
        for i in order
        if counts[i]
    )
    return Meaning(section.task, tuple(found))


@meaning.register
def _(section: Text, outputs: Mapping[str, Array], place: Placement | None) -> Meaning:
    letters, before = [], section.blank
    for index in outputs["classes"].tolist():
        if index != section.blank and not (section.collapse and index == before):
            shift = int(0 <= section.blank < index)
            letters.append(label(section, index - shift))
        before = index
    return Meaning(section.task, text="".join(letters))


def label(section: Postprocess, index: int) -> str:
    """Return the name of a class."""
    known = 0 <= index < len(section.labels)
    return section.labels[index] if known and section.labels[index] else str(index)


def _in_image(values: Array, place: Placement | None) -> tuple[float, ...]:
    """Map pairs of x and y from the program's picture into the image."""
    if place is None:
        return tuple(float(value) for value in values)
    (y, dy), (x, dx) = place.back()
    pairs = values.reshape(-1, 2).astype(np.float64) * (x, y) + (dx, dy)
    # The part that the program saw, which a cropped image exceeds.
    low = (place.left, place.top)
    high = (place.left + place.part[1], place.top + place.part[0])
    return tuple(float(value) for value in np.clip(pairs, low, high).reshape(-1))
