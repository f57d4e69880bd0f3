"""Turns a Keras model into an exported PyTorch program: Keras runs on PyTorch here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import torch

from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.models.foreign.agreement import Input, check_agreement, missing_shape
from edgekit.models.foreign.torchscript import runner, save
from edgekit.models.torch.program import first_line


def convert(path: Path, shapes: Mapping[str, tuple[int, ...]], target: Path) -> None:
    """Write the model for these shapes as a .pt2 file."""
    try:
        model = keras.saving.load_model(
            str(path), custom_objects=_of_keras_2(), compile=False, safe_mode=False
        )
        declared = list(model.inputs)
    except Exception as error:
        raise ModelError(
            f"Keras {keras.__version__} cannot load {path.name}: {first_line(error)}",
            hint="save the whole model with its input shape: model.save('net.keras')",
        ) from error
    inputs = [_input(path, tensor, shapes) for tensor in declared]
    module = _module(model, [one.name for one in inputs]).eval()
    examples = tuple(torch.from_numpy(one.example(0)) for one in inputs)
    with torch.no_grad():
        try:
            program = torch.export.export(module, examples, strict=False)
        except Exception as error:
            raise UnsupportedModelError(
                f"PyTorch cannot export {path.name}: {first_line(error)}",
                hint="export the model to ONNX from the program that made it",
            ) from error
        check_agreement(path.name, inputs, runner(module), runner(program.module()))
        save(program, [one.name for one in inputs], target)


def _of_keras_2() -> dict[str, Any]:
    """Return layers that take what Keras 2 wrote into .h5 files and Keras 3 no longer knows."""

    def older(layer: Any, key: str) -> Any:
        class Older(layer):
            @classmethod
            def from_config(cls, config: dict[str, Any]) -> Any:
                return layer.from_config({k: v for k, v in config.items() if k != key})

        return Older

    keys = {"DepthwiseConv2D": "groups", "GRU": "time_major", "LSTM": "time_major"}
    return {name: older(getattr(keras.layers, name), key) for name, key in keys.items()}


def _input(path: Path, tensor: Any, shapes: Mapping[str, tuple[int, ...]]) -> Input:
    """Return an input; its batch is 1 unless a shape is given."""
    name = str(tensor.name)
    own = tuple(tensor.shape)
    shape = shapes.get(name, (1, *own[1:]) if own and own[0] is None else own)
    if None in shape:
        raise missing_shape(path.name, name)
    return Input(name, str(tensor.dtype), shape)


def _module(model: Any, names: list[str]) -> torch.nn.Module:
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: torch.Tensor) -> Any:
            return self.model(tensors[0] if len(tensors) == 1 else list(tensors), training=False)

    return Network()
