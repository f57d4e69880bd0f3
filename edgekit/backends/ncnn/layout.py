"""How ncnn holds a tensor: it has no batch axis, and four axes at most.

A tensor's shape in ncnn is its own without a leading axis of one: (1, C, H, W) is held as
(C, H, W), (1, N) as (N,), and (N, M) unchanged. The data does not move, so a layer can read a value
under any other shape with as many elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgekit.backends.base import Refused, Region, Tensor

MOST_AXES = 4
MOST_ELEMENTS = 2**31 - 1
"""The most elements of a tensor: ncnn counts in int."""

Shape = tuple[int, ...]

_ORDERS_3D = ("whc", "hwc", "wch", "cwh", "hcw", "chw")
_ORDERS_4D = (
    *("whdc", "hwdc", "wdhc", "dwhc", "hdwc", "dhwc", "whcd", "hwcd"),
    *("wchd", "cwhd", "hcwd", "chwd", "wdch", "dwch", "wcdh", "cwdh"),
    *("dcwh", "cdwh", "hdcw", "dhcw", "hcdw", "chdw", "dchw", "cdhw"),
)
ORDERS = {1: ("w",), 2: ("wh", "hw"), 3: _ORDERS_3D, 4: _ORDERS_4D}
"""Permutations in the order of ncnn's numbers: the axes of the result, innermost first."""
AXES = {1: "w", 2: "hw", 3: "chw", 4: "cdhw"}
"""ncnn's names of the axes by rank, outermost first."""


def held(shape: Sequence[int]) -> Shape:
    """Return a tensor's shape in ncnn, from the outermost axis to the innermost."""
    kept = tuple(shape[1:]) if leading(shape) else tuple(shape)
    return checked(kept or (1,))


def held_tensor(tensor: Tensor, turned: bool = False) -> Shape:
    """Return the shape in ncnn of a value of a model. `turned` values are stored integers
    (rules/quantised.py) with channels last in the model, as in TFLite, and first in ncnn."""
    shape = tensor.shape
    if turned:
        shape = (shape[0], shape[3], shape[1], shape[2])
    return held(shape)


def turned_tensors(region: Region) -> frozenset[str]:
    """Return the turned tensors' names, from the settings of the layers that read or make them."""
    return frozenset(
        tensor.name
        for step in region.steps
        if step.layer.settings.get("channels_last")
        for tensor in (*step.inputs, *step.outputs)
    )


def form(tensor: Tensor, turned: bool) -> str:
    """Return the form of a tensor at the region's boundary, by its name in edgekit_ncnn.h."""
    if tensor.dtype == "int8":
        return "kTurned" if turned else "kStored"
    return {"uint8": "kStoredUnsigned", "int64": "kPlace"}.get(tensor.dtype, "kFloats")


def leading(shape: Sequence[int]) -> int:
    """Return how many leading axes `held` leaves out: 1 or 0."""
    return 1 if len(shape) > 1 and shape[0] == 1 else 0


def checked(shape: Shape) -> Shape:
    if any(extent < 1 for extent in shape):
        raise Refused(f"its shape {list(shape)} has an axis without elements")
    if len(shape) > MOST_AXES:
        raise Refused(
            f"ncnn holds {MOST_AXES} axes besides a batch of 1, and its shape has {len(shape)}"
        )
    if math.prod(shape) > MOST_ELEMENTS:
        raise Refused("it has more elements than ncnn can count")
    return shape


def held_axis(shape: Sequence[int], axis: int) -> int:
    """Return an axis's index in ncnn; raise Refused for the axis that is left out."""
    positive = axis + len(shape) if axis < 0 else axis
    place = positive - leading(shape)
    if place < 0:
        raise Refused("it works along the batch axis, which ncnn has not")
    return place
