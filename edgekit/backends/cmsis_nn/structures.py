"""C that fills the library's structures field by field: their order differs between releases."""

from __future__ import annotations

from edgekit.aot.operators import Image, Rescale, Window
from edgekit.base.arrays import Array


def dims(name: str, n: int, height: int, width: int, channels: int) -> list[str]:
    fields = {"n": n, "h": height, "w": width, "c": channels}
    return [f"{name}->{field} = {value};" for field, value in fields.items()]


def image(name: str, of: Image) -> list[str]:
    return dims(name, 1, of.height, of.width, of.channels)


def tiles(window: Window, dilated: bool = True) -> list[str]:
    pairs = {"stride": window.strides, "padding": window.padding[:2]}
    if dilated:
        pairs["dilation"] = window.dilations
    return [
        f"params->{name}.{axis} = {value};"
        for name, values in pairs.items()
        for axis, value in zip("hw", values, strict=True)
    ]


def limits(low: int, high: int) -> list[str]:
    return [f"params->activation.min = {low};", f"params->activation.max = {high};"]


def factors(rescale: Rescale, channels: int) -> tuple[Array, Array]:
    """Return multipliers and shifts, one for each channel."""
    import numpy as np

    each = rescale.factors * (channels // len(rescale.factors))
    multipliers: Array = np.array([factor.multiplier for factor in each], np.int32)
    shifts: Array = np.array([factor.shift for factor in each], np.int32)
    return multipliers, shifts
