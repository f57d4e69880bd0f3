"""The declared preprocessing from image to input tensor.

`ends/` makes it a part of the program; `images.py` applies what stays on the host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from edgekit.base.decode import Check, Convert, Range, decode, finite
from edgekit.base.quoting import toml_key
from edgekit.base.tensors import TensorSpec
from edgekit.base.wording import counted

Layout = Literal["NCHW", "NHWC"]
Color = Literal["rgb", "bgr", "gray"]
Resize = Literal["stretch", "crop", "pad"]
Interpolation = Literal["linear", "nearest", "cubic"]
Anchor = Literal["center", "start"]
Side = Literal["board", "host"]

LARGEST_SIDE = 8192
"""The most pixels of a side of the picture that a program takes."""

_FRACTION = re.compile(r"(-?[0-9]{1,9})/([1-9][0-9]{0,8})")


def _number(value: object) -> float:
    fraction = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    if fraction:  # TOML has no division
        return int(fraction[1]) / int(fraction[2])
    return finite(value)


def _numbers(value: object) -> tuple[float, ...]:
    return decode(tuple[_Number, ...], value if isinstance(value, (list, tuple)) else [value])


_Number = Annotated[float, Convert('a number, or a fraction such as "1/255"', _number)]
_Numbers = Annotated[tuple[float, ...], Convert('numbers, or fractions such as "1/255"', _numbers)]
_Sides = Annotated[
    tuple[Annotated[int, Range(1, LARGEST_SIDE)], ...],
    Check("two whole numbers, height and width", lambda sides: len(sides) == 2),
]


@dataclass(frozen=True)
class Preprocess:
    """The formula value = (pixel * scale - mean) / std, with pixels of 0 to 255. The value is
    quantised if the input is.

    `mean` and `std` hold one number for all channels, or one per channel in the order of `color`.
    On the board, the input of the program is a picture: pixels as uint8, in height x width x
    channels, red first.
    """

    layout: Layout
    color: Color = "rgb"
    resize: Resize = "stretch"
    mean: _Numbers = (0.0,)
    std: _Numbers = (1.0,)
    scale: _Number = 1.0
    on: Side | None = None
    """The side that computes it; None is the board."""
    size: _Sides | None = None
    """The height and width of the picture that the program takes; None is the model's own."""
    interpolation: Interpolation = "linear"
    """The values between pixels where the program resizes a picture, without antialiasing."""
    anchor: Anchor = "center"
    """The place of a padded picture."""
    fill: Annotated[float, Range(0, 255)] = 0.0
    """The pixels around a padded picture."""

    def __post_init__(self) -> None:
        for key, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise ValueError(
                    f"it has {counted(len(values), 'number')} in {key!r}, and {self.color} has "
                    f"{self.channels} channels: give one for all, or one a channel"
                )
        if 0.0 in self.std:
            raise ValueError("it divides by a std of 0; 1.0 leaves values alone")
        if self.scale == 0.0:
            raise ValueError('it has a scale of 0; 1.0 is for pixels to 255, "1/255" for 0 to 1')

    @property
    def channels(self) -> int:
        return 1 if self.color == "gray" else 3


def example_toml(spec: TensorSpec) -> str:
    """Return example lines for edgekit.toml that declare a preprocessing for this input."""
    layout, channels = _guess_layout(spec.shape)
    lines = [f"[preprocess.{toml_key(spec.name)}]", f'layout = "{layout}"']
    lines.append('color = "gray"' if channels == 1 else 'color = "rgb"')
    lines.append('resize = "crop"')
    stored_as_pixels = spec.dtype in ("uint8", "int8") and spec.quantization is None
    lines.append("scale = 1.0" if stored_as_pixels else 'scale = "1/255"')
    zeros, ones = ["0.0"] * channels, ["1.0"] * channels
    lines += [f"mean = [{', '.join(zeros)}]", f"std = [{', '.join(ones)}]"]
    return "\n".join(lines)


def _guess_layout(shape: tuple[int, ...]) -> tuple[Layout, int]:
    if len(shape) >= 3 and shape[-1] in (1, 3):
        return "NHWC", shape[-1]
    if len(shape) >= 3 and shape[-3] == 1:
        return "NCHW", 1
    return "NCHW", 3
