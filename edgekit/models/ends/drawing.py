"""Draws what a program found into the image that it was given."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from edgekit.base.arrays import Array
from edgekit.models.ends.geometry import Placement, placement
from edgekit.models.ends.reading import Meaning
from edgekit.models.images import open_image
from edgekit.models.preprocess import Preprocess

if TYPE_CHECKING:
    from PIL import ImageDraw

Color: TypeAlias = "tuple[int, int, int]"
COLORS = (
    *((230, 25, 75), (60, 180, 75), (0, 130, 200), (245, 130, 48), (145, 30, 180), (70, 240, 240)),
    *((240, 50, 230), (210, 245, 60), (250, 190, 212), (0, 128, 128), (255, 225, 25), (128, 0, 0)),
)
_OPACITY = 0.5
_HEIGHT = 12
"""The height of a line of words in pixels."""


def draw(
    image: Path,
    found: Meaning,
    outputs: Mapping[str, Array],
    preprocess: Preprocess,
    place: Placement,
) -> bytes:
    """Return a PNG of the image with the boxes, the mask or the words in it.

    `place` is that of the image in the program's picture.
    """
    from PIL import Image, ImageDraw

    canvas = open_image(image).convert("RGB")
    mask = outputs["mask"] if "mask" in outputs else _joined(outputs)
    if mask is not None:
        canvas = Image.fromarray(_covered(np.asarray(canvas), mask, preprocess, place))
    pen = ImageDraw.Draw(canvas)
    thick = max(1, min(canvas.size) // 200)
    lines = [found.text] if found.text is not None else []
    for one in found.found:
        color = COLORS[one.index % len(COLORS)]
        words = f"{one.name} {one.score:.2f}"
        if one.box is None:
            lines.append(words)
            continue
        pen.rectangle(one.box, outline=color, width=thick)
        _write(pen, one.box[0], one.box[1], words, color)
        points = one.landmarks or ()
        for x, y in zip(points[::2], points[1::2], strict=True):
            pen.ellipse((x - thick, y - thick, x + thick, y + thick), fill=color)
    for number, words in enumerate(lines):
        _write(pen, 0, (number + 1) * _HEIGHT, words, (0, 0, 0))
    buffer = io.BytesIO()
    canvas.save(buffer, "PNG")
    return buffer.getvalue()


def _write(pen: ImageDraw.ImageDraw, x: float, y: float, words: str, color: Color) -> None:
    """Write words above a point, on a ground of their own."""
    corner = (x, max(0.0, y - _HEIGHT))
    pen.rectangle(pen.textbbox(corner, words), fill=color)
    pen.text(corner, words, fill=(255, 255, 255))


def _joined(outputs: Mapping[str, Array]) -> Array | None:
    """Return one mask out of those of boxes, the best box on top; its numbers have their colors."""
    if "masks" not in outputs:
        return None
    masks = outputs["masks"]
    joined = np.zeros(masks.shape[1:], np.uint8)
    for row in reversed(np.flatnonzero(outputs["scores"] > 0)):
        number = int(outputs["classes"][row]) % len(COLORS) + len(COLORS)
        joined[masks[row] > 0] = number
    return joined


def _covered(pixels: Array, mask: Array, preprocess: Preprocess, place: Placement) -> Array:
    """Return the image with each pixel of a class but the first in the color of the class."""
    seen = placement(preprocess, place.target, (mask.shape[0], mask.shape[1]))
    rows, columns = (
        _places(extent, axis, seen, place) for axis, extent in enumerate(pixels.shape[:2])
    )
    inside = np.outer(rows >= 0, columns >= 0)
    classes = np.where(inside, mask[np.ix_(rows, columns)], 0)
    colors = np.array(COLORS)[classes % len(COLORS)]
    mixed = pixels * (1 - _OPACITY) + colors * _OPACITY
    return np.where(classes[..., None] > 0, mixed, pixels).astype(np.uint8)


def _places(extent: int, axis: int, seen: Placement, place: Placement) -> Array:
    """Return the mask's row or column for each of the image's; -1 outside what was seen."""
    (outer, outer_shift), (inner, inner_shift) = place.back()[axis], seen.back()[axis]
    centres = np.arange(extent) + 0.5
    found = ((centres - outer_shift) / outer - inner_shift) / inner
    places = np.floor(found).astype(np.int64)
    return np.where((places >= 0) & (places < seen.target[axis]), places, -1)
