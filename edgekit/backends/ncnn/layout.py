"""How ncnn holds a tensor: it has no batch axis, and four axes at most.

A tensor's shape in ncnn is its own without a leading axis of one: (1, C, H, W) is held as
(C, H, W), (1, N) as (N,), and (N, M) as it is. Nothing moves in memory by that, so a value can be
read under any other shape of as many elements where a layer wants one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgekit.backends.base import Refused, Region, Tensor

FORMS = ("kFloats", "kPlace", "kStored", "kStoredUnsigned", "kTurned")
"""In the order of edgekit_ncnn.h."""
MOST_AXES = 4
MOST_ELEMENTS = 2**31 - 1
"""ncnn counts in int."""

Shape = tuple[int, ...]

_ORDERS_3D = ("whc", "hwc", "wch", "cwh", "hcw", "chw")
_ORDERS_4D = (
    *("whdc", "hwdc", "wdhc", "dwhc", "hdwc", "dhwc", "whcd", "hwcd"),
    *("wchd", "cwhd", "hcwd", "chwd", "wdch", "dwch", "wcdh", "cwdh"),
    *("dcwh", "cdwh", "hdcw", "dhcw", "hcdw", "chdw", "dchw", "cdhw"),
)
ORDERS = {1: ("w",), 2: ("wh", "hw"), 3: _ORDERS_3D, 4: _ORDERS_4D}
"""ncnn's numbers of permutations: the axes of the result, from the innermost."""
AXES = {1: "w", 2: "hw", 3: "chw", 4: "cdhw"}
"""ncnn's names of the axes, by how many there are, from the outermost."""


def held(shape: Sequence[int]) -> Shape:
    """A tensor's shape in ncnn, from the outermost axis to the innermost."""
    kept = tuple(shape[1:]) if leading(shape) else tuple(shape)
    return checked(kept or (1,))


def held_tensor(tensor: Tensor, turned: bool = False) -> Shape:
    """The same for a value of a model. `turned`: stored integers (rules/quantised.py) whose
    channels are last in the model, as TFLite has images, are first in ncnn."""
    shape = tensor.shape
    if turned:
        shape = (shape[0], shape[3], shape[1], shape[2])
    return held(shape)


def turned_tensors(region: Region) -> frozenset[str]:
    """The names of those: the layers that read or make them say so."""
    return frozenset(
        tensor.name
        for step in region.steps
        if step.layer.settings.get("channels_last")
        for tensor in (*step.inputs, *step.outputs)
    )


def form(tensor: Tensor, turned: bool) -> str:
    """What a tensor at the region's boundary is: edgekit_ncnn.h knows the same names."""
    if tensor.dtype == "int8":
        return "kTurned" if turned else "kStored"
    return {"uint8": "kStoredUnsigned", "int64": "kPlace"}.get(tensor.dtype, "kFloats")


def leading(shape: Sequence[int]) -> int:
    """How many axes `held` leaves out in front: 1 or 0."""
    return 1 if len(shape) > 1 and shape[0] == 1 else 0


def checked(shape: Shape) -> Shape:
    if any(extent < 1 for extent in shape):
        raise Refused(f"its shape {list(shape)} has an axis without elements")
    if len(shape) > MOST_AXES:
        raise Refused(
            f"ncnn holds {MOST_AXES} axes beside a batch of 1, and its shape has {len(shape)}"
        )
    if math.prod(shape) > MOST_ELEMENTS:
        raise Refused("it has more elements than ncnn can count")
    return shape


def held_axis(shape: Sequence[int], axis: int) -> int:
    """Where an axis lies in ncnn; Refused for the one that is left out."""
    positive = axis + len(shape) if axis < 0 else axis
    place = positive - leading(shape)
    if place < 0:
        raise Refused("it works along the batch axis, which ncnn has not")
    return place


def lies_without_gaps(shape: Shape) -> bool:
    """Whether ncnn's memory for it is TVM's: channels start at multiples of 16 bytes."""
    return len(shape) < 3 or math.prod(shape[1:]) % 4 == 0
