"""The first values of the state that a model keeps from one call to the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.tensors import TensorSpec
from edgekit.models.model import ModelSource


def first_state(source: ModelSource, specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Return the value of each input that is state in the first call: the file's own, or zeros."""
    states = [spec for spec in specs if spec.state is not None]
    stored: dict[str, Array] = {}
    if states and source.format == "tflite":
        from edgekit.models.tflite.file import read_tflite
        from edgekit.models.tflite.states import first_values

        stored = first_values(read_tflite(source.path))
    zeros = {spec.name: np.zeros(spec.shape, numpy_dtype(spec.dtype)) for spec in states}
    return {**zeros, **stored}
