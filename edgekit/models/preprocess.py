"""The declared preprocessing from image to input tensor; `images.py` applies it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, cast

from edgekit.base.errors import ProjectError
from edgekit.base.quoting import toml_key
from edgekit.base.tensors import TensorSpec

Layout = Literal["NCHW", "NHWC"]
Color = Literal["rgb", "bgr", "gray"]
Resize = Literal["stretch", "crop", "pad"]

_LAYOUTS = ("NCHW", "NHWC")
_COLORS = ("rgb", "bgr", "gray")
_RESIZES = ("stretch", "crop", "pad")
_FRACTION = re.compile(r"(-?[0-9]{1,9})/([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Preprocess:
    """The formula value = (pixel * scale - mean) / std, with pixels of 0 to 255. The value is
    quantised if the input is.

    `mean` and `std` hold one number for all channels, or one per channel in the order of `color`.
    """

    layout: Layout
    color: Color = "rgb"
    resize: Resize = "stretch"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = 1.0

    @property
    def channels(self) -> int:
        return 1 if self.color == "gray" else 3


def parse_preprocess(table: Mapping[str, object], where: str) -> Preprocess:
    """Read a declaration from TOML or JSON; `where` names it in errors, as "edgekit.toml: …"."""
    known = [field.name for field in fields(Preprocess)]
    for key in table:
        if key not in known:
            raise ProjectError(
                f"{where} has an unknown key {key!r}",
                hint=_did_you_mean(key, known) or f"the keys are {', '.join(known)}",
            )
    if "layout" not in table:
        raise ProjectError(
            f"{where} does not say how its pixels lie in memory",
            hint='add layout = "NCHW" or layout = "NHWC"',
        )
    preprocess = Preprocess(
        layout=cast(Layout, _word(table, "layout", _LAYOUTS, "", where)),
        color=cast(Color, _word(table, "color", _COLORS, "rgb", where)),
        resize=cast(Resize, _word(table, "resize", _RESIZES, "stretch", where)),
        mean=_numbers(table, "mean", (0.0,), where),
        std=_numbers(table, "std", (1.0,), where),
        scale=_number(table.get("scale", 1.0), "scale", where),
    )
    _check(preprocess, where)
    return preprocess


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


def _check(preprocess: Preprocess, where: str) -> None:
    for key, values in (("mean", preprocess.mean), ("std", preprocess.std)):
        if len(values) not in (1, preprocess.channels):
            raise ProjectError(
                f"{where} has {len(values)} numbers in {key!r}, "
                f"and {preprocess.color} has {preprocess.channels} channels",
                hint="give one number for all channels, or one a channel",
            )
    if 0.0 in preprocess.std:
        raise ProjectError(f"{where} divides by a std of 0", hint="use 1.0 to leave values alone")
    if preprocess.scale == 0.0:
        raise ProjectError(
            f"{where} has a scale of 0, which makes every pixel the same",
            hint='use 1.0 for pixels of 0 to 255, "1/255" for 0 to 1',
        )


def _word(
    table: Mapping[str, object], key: str, allowed: tuple[str, ...], default: str, where: str
) -> str:
    value = table.get(key, default)
    if isinstance(value, str) and value in allowed:
        return value
    near = _did_you_mean(value, allowed) if isinstance(value, str) else None
    raise ProjectError(
        f"{where} has {key} = {value!r}",
        hint=near or f"{key} is one of {', '.join(allowed)}",
    )


def _numbers(
    table: Mapping[str, object], key: str, default: tuple[float, ...], where: str
) -> tuple[float, ...]:
    value = table.get(key)
    if value is None:
        return default
    if isinstance(value, list | tuple):
        return tuple(_number(item, key, where) for item in value)
    return (_number(value, key, where),)


def _number(value: object, key: str, where: str) -> float:
    fraction = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    if fraction:  # TOML has no division
        value = int(fraction[1]) / int(fraction[2])
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not _finite(cast(float, value)):
        raise ProjectError(
            f"{where} has {key} with {value!r} where a number belongs",
            hint='write numbers like 0.5, or fractions like "1/255"',
        )
    return float(cast(float, value))


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _did_you_mean(word: str, allowed: list[str] | tuple[str, ...]) -> str | None:
    near = difflib.get_close_matches(word, allowed, n=1)
    near = near or [option for option in allowed if option.lower() == word.lower()]
    return f"did you mean {near[0]!r}?" if near else None
