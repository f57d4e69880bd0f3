"""How a picture of one size fits into another, for the program and the host alike."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.models.preprocess import Preprocess

Size = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True)
class Placement:
    """A part of a picture, resized to `inner`, at a place in another picture."""

    top: int
    left: int
    part: Size
    """The part that is taken, from `top` and `left` on."""
    inner: Size
    """Its size afterwards."""
    down: int
    across: int
    """Its place in the other picture."""
    target: Size

    def back(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return factor and offset of y, then of x, from the other picture into the first."""
        y = self.part[0] / self.inner[0]
        x = self.part[1] / self.inner[1]
        return (y, self.top - self.down * y), (x, self.left - self.across * x)


def placement(preprocess: Preprocess, source: Size, target: Size) -> Placement:
    """Return how a picture is placed in another: stretched, cropped, or padded."""
    (height, width), (tall, wide) = source, target
    if preprocess.resize == "crop":
        if width * tall > wide * height:
            part = (height, max(1, round(height * wide / tall)))
        else:
            part = (max(1, round(width * tall / wide)), width)
        top, left = (height - part[0]) // 2, (width - part[1]) // 2
        return Placement(top, left, part, target, 0, 0, target)
    if preprocess.resize == "pad":
        ratio = min(tall / height, wide / width)
        inner = (
            min(tall, max(1, round(height * ratio))),
            min(wide, max(1, round(width * ratio))),
        )
        centred = preprocess.anchor == "center"
        down = (tall - inner[0]) // 2 if centred else 0
        across = (wide - inner[1]) // 2 if centred else 0
        return Placement(0, 0, source, inner, down, across, target)
    return Placement(0, 0, source, target, 0, 0, target)
