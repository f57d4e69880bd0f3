"""The values between the layers of a model, in any format whose variants may return them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.models.inner_value import InnerValue

_AT_ONCE = 16
"""The inner values that one variant returns: each is kept until the end, and ends a fusion."""


class InnerModel(Protocol):
    """A model file, with every value that a variant of it may return."""

    @property
    def values(self) -> Sequence[InnerValue]: ...

    def write(self, path: Path, values: Sequence[InnerValue]) -> None:
        """Write the model with the values of these names as its outputs."""


def inner_model(path: Path, shapes: Mapping[str, Sequence[int]]) -> InnerModel:
    """Read a model file; UnsupportedModelError for a format without variants."""
    if path.suffix == ".onnx":
        from edgekit.models.onnx.inner_values import OnnxInnerModel

        return OnnxInnerModel(path, shapes)
    if path.suffix == ".tflite":
        from edgekit.models.tflite.inner_values import TfliteInnerModel

        return TfliteInnerModel(path)
    if path.suffix == ".pt2":
        from edgekit.models.torch.inner_values import TorchInnerModel

        return TorchInnerModel(path)
    raise UnsupportedModelError(
        f"the inner values of {path.name} can't be outputs: it is none of .onnx, .tflite and .pt2",
        hint="debug another form of the model; edgekit verify compares the outputs of every format",
    )


def slices(model: InnerModel, expected: InnerModel) -> list[list[InnerValue]]:
    """Return the values that both models have, in the order of the first, some at a time."""
    common = {value.name for value in expected.values}
    values = [value for value in model.values if value.name in common]
    if not values:
        raise ModelError(
            "the models have no value of the same name",
            hint="compare a model with the one that it was made from",
        )
    return [values[at : at + _AT_ONCE] for at in range(0, len(values), _AT_ONCE)]
