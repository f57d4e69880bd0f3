"""The options of MediaPipe's custom operators, as plain data.

Their definitions are MediaPipe's kernels, mediapipe/util/tflite/operations. The second version of
each is read; files with the first are older than the landmark models of today.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flatbuffers import flexbuffers

MATRIX = "CUSTOM:Landmarks2TransformMatrix"
SAMPLE = "CUSTOM:TransformTensorBilinear"
LANDMARKS = "CUSTOM:TransformLandmarks"
SPREAD = "CUSTOM:Convolution2DTransposeBias"
MEDIAPIPE = frozenset({MATRIX, SAMPLE, LANDMARKS, SPREAD})
_MOST = 100_000
_SAME, _VALID = 1, 2


@dataclass(frozen=True)
class CropOptions:
    """How a matrix from a square of pixels to landmarks is found."""

    chosen: tuple[int, ...]
    """The landmarks that the crop encloses."""
    left: int
    right: int
    """Two landmarks whose connection becomes level."""
    rotation: float
    """The angle of that connection in the crop, in radians."""
    size: tuple[int, int]
    """Height and width of the crop."""
    scale: tuple[float, float]
    """The share of the enclosed box, y and x."""


@dataclass(frozen=True)
class SpreadOptions:
    """How a transposed convolution moves."""

    same: bool
    strides: tuple[int, int]
    """Vertical and horizontal."""

    def padding(self, axis: int, extent: int, kernel: int) -> tuple[int, int]:
        """Return how many rows or columns are cut off before and behind."""
        stride = self.strides[axis]
        cut = max(0, kernel - (extent - 1) % stride - 1) if self.same else 0
        return cut // 2, cut - cut // 2


def crop_options(stored: bytes) -> CropOptions:
    found = _map(stored)
    try:
        return CropOptions(
            tuple(int(one) for one in found["subset_idxs"]),
            int(found["left_rotation_idx"]),
            int(found["right_rotation_idx"]),
            float(found["target_rotation_radians"]),
            (int(found["output_height"]), int(found["output_width"])),
            (float(found["scale_y"]), float(found["scale_x"])),
        )
    except KeyError as error:
        raise ValueError(f"its options lack {error}; the older version is not read") from error


def check_landmarks(options: CropOptions, count: int) -> None:
    """Raise ValueError if the options name a landmark that the tensor does not have."""
    named = (*options.chosen, options.left, options.right)
    if not options.chosen or not all(0 <= one < count for one in named):
        raise ValueError(f"its options name landmarks beyond {count}")
    if not all(0 < one < _MOST for one in (*options.size, *options.scale)):
        raise ValueError("its options are no sizes")


def spread_options(stored: bytes) -> SpreadOptions:
    if len(stored) < 12:
        raise ValueError("its options are damaged")
    padding, width, height = struct.unpack("<iii", stored[:12])
    if padding not in (_SAME, _VALID) or not (0 < width < _MOST and 0 < height < _MOST):
        raise ValueError("its options are damaged")
    return SpreadOptions(padding == _SAME, (height, width))


def _map(stored: bytes) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = flexbuffers.Loads(stored)
        return dict(found)
    except Exception as error:  # the reader trusts its bytes
        raise ValueError("its options are damaged") from error
