"""Random quantised networks with branches and residuals, one operator after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from support.tflite_models import Op, T, constant, tflite_bytes

SCALES = st.floats(0.02, 0.09).map(lambda value: float(np.float32(value)))
ZEROS = st.integers(-100, 100)


class Growing:
    """A network that grows by one operator after the other."""

    def __init__(self, data: st.DataObject, shape: tuple[int, ...]) -> None:
        self._draw = data.draw
        self._random = np.random.default_rng(self._draw(st.integers(0, 2**32 - 1)))
        self.tensors = [T("x", shape, "int8", scale=self._draw(SCALES), zero=self._draw(ZEROS))]
        self.operators: list[Op] = []
        self.images = [self.tensors[0]]

    def grow(self) -> None:
        kind = self._draw(st.sampled_from(KINDS))
        source = self._draw(st.sampled_from(self.images[-3:]))
        getattr(self, kind)(source)

    def _result(self, shape: tuple[int, ...], like: T | None = None) -> T:
        name = f"t{len(self.tensors)}"
        scale = self._draw(SCALES) if like is None else like.scale
        zero = self._draw(ZEROS) if like is None else like.zero
        made = T(name, shape, "int8", scale=scale, zero=zero)
        self.tensors.append(made)
        self.images.append(made)
        return made

    def _whole(self, shape: tuple[int, ...], limit: int = 127) -> np.ndarray:
        return self._random.integers(-limit, limit + 1, shape)

    def _constant(self, values: np.ndarray, dtype: str, **more: Any) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(constant(name, values.astype(dtype), **more))
        return name

    def _add(self, name: str, inputs: tuple[str, ...], result: T, **options: Any) -> None:
        self.operators.append(Op(name, inputs, (result.name,), options))

    def _layer(
        self, name: str, source: T, weights: tuple[int, ...], axis: int, **more: Any
    ) -> None:
        channels = weights[axis]
        scales = self._random.uniform(0.001, 0.01, channels).astype("float32")
        kernel = self._constant(
            self._whole(weights), "int8", scale=tuple(float(s) for s in scales), axis=axis
        )
        steps = tuple(float(s * np.float32(source.scale)) for s in scales)
        bias = self._constant(self._whole((channels,), 800), "int32", scale=steps)
        stride = self._draw(st.sampled_from([1, 1, 2]))
        shape = (1, *(-(-extent // stride) for extent in source.shape[1:3]), channels)
        activation = self._draw(st.sampled_from([0, 1]))
        settings = {"padding": 0, "strideH": stride, "strideW": stride}
        self._add(
            name,
            (source.name, kernel, bias),
            self._result(shape),
            **settings,
            fusedActivationFunction=activation,
            **more,
        )

    def convolve(self, source: T) -> None:
        size = self._draw(st.sampled_from([1, 3]))
        channels = self._draw(st.integers(1, 6))
        weights = (channels, size, size, source.shape[3])
        self._layer("CONV_2D", source, weights, 0, table="Conv2DOptions")

    def by_channel(self, source: T) -> None:
        weights = (1, 3, 3, source.shape[3])
        more = {"table": "DepthwiseConv2DOptions", "depthMultiplier": 1}
        self._layer("DEPTHWISE_CONV_2D", source, weights, 3, **more)

    def add(self, source: T) -> None:
        alike = [image for image in self.images if image.shape == source.shape]
        other = self._draw(st.sampled_from(alike))
        name = self._draw(st.sampled_from(["ADD", "MUL", "SUB"]))
        result = self._result(source.shape)
        self._add(name, (source.name, other.name), result, table=f"{name.capitalize()}Options")

    def squash(self, source: T) -> None:
        name = self._draw(st.sampled_from(["TANH", "RELU", "QUANTIZE", "LEAKY_RELU"]))
        more = {"table": "LeakyReluOptions", "alpha": 0.25} if name == "LEAKY_RELU" else {}
        self._add(name, (source.name,), self._result(source.shape), **more)

    def pool(self, source: T) -> None:
        name = self._draw(st.sampled_from(["AVERAGE_POOL_2D", "MAX_POOL_2D"]))
        settings = {"filterHeight": 3, "filterWidth": 2, "padding": 0, "strideH": 1, "strideW": 1}
        result = self._result(source.shape, like=source)
        self._add(name, (source.name,), result, table="Pool2DOptions", **settings)

    def pad(self, source: T) -> None:
        widths = np.array([[0, 0], [1, 0], [0, 1], [0, 0]])
        height, width, channels = source.shape[1:]
        result = self._result((1, height + 1, width + 1, channels), like=source)
        self._add("PAD", (source.name, self._constant(widths, "int32")), result, table="PadOptions")

    def join(self, source: T) -> None:
        channels = 2 * source.shape[3]
        result = self._result((*source.shape[:3], channels), like=source)
        names = (source.name, source.name)
        self._add("CONCATENATION", names, result, table="ConcatenationOptions", axis=3)

    def ends(self) -> list[str]:
        """Return the last tensor, and one before it."""
        before = self._draw(st.sampled_from(self.images[1:])).name
        return list(dict.fromkeys((self.images[-1].name, before)))

    def content(self) -> bytes:
        return tflite_bytes(self.tensors, self.operators, ["x"], self.ends())


KINDS = ["convolve", "by_channel", "by_channel", "add", "add", "squash", "pool", "pad", "join"]
