"""Writes the operators of [preprocess]: from a picture as uint8 to the input of the model."""

from __future__ import annotations

import numpy as np
import onnx

from edgekit.base.arrays import numpy_dtype
from edgekit.base.errors import ProjectError
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.models.ends.geometry import Placement, Size, placement
from edgekit.models.onnx.ends.nodes import FLOAT, Nodes
from edgekit.models.preprocess import Preprocess


def model_size(spec: TensorSpec, preprocess: Preprocess) -> Size:
    """Return height and width of a model's input; ProjectError if it takes no such picture."""
    shape = spec.shape[1:] if len(spec.shape) == 4 and spec.shape[0] == 1 else spec.shape
    if len(shape) == 3:
        turned = preprocess.layout == "NCHW"
        channels, height, width = shape if turned else (shape[2], shape[0], shape[1])
        if channels == preprocess.channels:
            return height, width
    raise ProjectError(
        f"the input {spec.name} has shape {list(spec.shape)}, which takes no {preprocess.color} "
        f"image in {preprocess.layout}",
        hint=f"correct layout and color in [preprocess.{spec.name}]",
    )


def write_front(nodes: Nodes, picture: str, preprocess: Preprocess, spec: TensorSpec) -> str:
    """Write the nodes that turn the picture into the input `spec`, and return their result."""
    target = model_size(spec, preprocess)
    height, width = preprocess.size or target
    place = placement(preprocess, (height, width), target)
    value = picture
    if place.part != (height, width):
        value = nodes.sliced(value, 0, place.top, place.top + place.part[0])
        value = nodes.sliced(value, 1, place.left, place.left + place.part[1])
    if place.part == place.target and _keeps_pixels(preprocess, spec):
        value = _arranged(nodes, value, preprocess)
        return nodes.reshaped(value, *spec.shape)
    value = _resized(nodes, nodes.cast(value, FLOAT), preprocess, place)
    value = _normalised(nodes, value, preprocess)
    value = nodes.reshaped(_arranged(nodes, value, preprocess), *spec.shape)
    return _stored(nodes, value, spec)


def _keeps_pixels(preprocess: Preprocess, spec: TensorSpec) -> bool:
    """Tell whether the model takes pixels as they are."""
    formula = (preprocess.scale, *preprocess.mean, *preprocess.std)
    plain = (1.0, *(0.0 for _ in preprocess.mean), *(1.0 for _ in preprocess.std))
    return spec.dtype == "uint8" and spec.quantization is None and formula == plain


def _resized(nodes: Nodes, value: str, preprocess: Preprocess, place: Placement) -> str:
    channels = preprocess.channels
    if place.part != place.inner:
        value = nodes.add("Transpose", value, perm=[2, 0, 1])
        value = nodes.reshaped(value, 1, channels, *place.part)
        value = nodes.resized(value, (1, channels, *place.inner), preprocess.interpolation)
        if preprocess.interpolation == "cubic":  # which leaves the range of pixels
            value = nodes.clipped(value, 0.0, 255.0)
        value = nodes.reshaped(value, channels, *place.inner)
        value = nodes.add("Transpose", value, perm=[1, 2, 0])
    if place.inner != place.target:
        (tall, wide), (height, width) = place.target, place.inner
        below, right = tall - height - place.down, wide - width - place.across
        pads = nodes.whole(place.down, place.across, 0, below, right, 0)
        value = nodes.add("Pad", value, pads, nodes.constant(preprocess.fill), mode="constant")
    return value


def _normalised(nodes: Nodes, value: str, preprocess: Preprocess) -> str:
    """Write (pixel * scale - mean) / std as one factor and one offset for each channel."""
    mean, std = (
        np.broadcast_to(np.asarray(numbers), (preprocess.channels,))
        for numbers in (preprocess.mean, preprocess.std)
    )
    if preprocess.color == "bgr":  # the picture is still red first
        mean, std = mean[::-1], std[::-1]
    factor, offset = preprocess.scale / std, mean / std
    if (factor != 1.0).any():
        value = nodes.add("Mul", value, nodes.constant(factor))
    if (offset != 0.0).any():
        value = nodes.add("Sub", value, nodes.constant(offset))
    return value


def _arranged(nodes: Nodes, value: str, preprocess: Preprocess) -> str:
    if preprocess.color == "bgr":
        value = nodes.add("Gather", value, nodes.whole(2, 1, 0), axis=2)
    if preprocess.layout == "NCHW":
        value = nodes.add("Transpose", value, perm=[2, 0, 1])
    return value


def _stored(nodes: Nodes, value: str, spec: TensorSpec) -> str:
    """Turn real numbers into the type of the model's input."""
    if spec.dtype == "float32":
        return value
    if numpy_dtype(spec.dtype).kind not in "iu":
        return nodes.cast(value, onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(spec.dtype)))
    if spec.dtype not in ("uint8", "int8"):
        raise ProjectError(
            f"the input {spec.name} holds {spec.dtype}, which no picture is stored in",
            hint=f'write on = "host" in [preprocess.{spec.name}]',
        )
    quantization = spec.quantization or Quantization((1.0,), (0,))
    if len(quantization.scales) != 1:
        raise ProjectError(
            f"the input {spec.name} is quantised per channel, which pictures do not support",
            hint=f"leave [preprocess.{spec.name}] out, and prepare the tensor yourself",
        )
    scale = nodes.constant(quantization.scales[0])
    zero = nodes.constant(quantization.zero_points[0], spec.dtype)
    return nodes.add("QuantizeLinear", value, scale, zero)
