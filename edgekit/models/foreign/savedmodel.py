"""Turns a SavedModel into a TFLite model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from edgekit.base.arrays import Array
from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.models.foreign.agreement import Input, check_agreement, missing_shape

_SIGNATURE = "serving_default"


def convert(path: Path, shapes: Mapping[str, tuple[int, ...]], target: Path) -> None:
    """Write the model's serving function for these shapes as a .tflite file."""
    try:
        model = tf.saved_model.load(str(path))
    except Exception as error:
        raise ModelError(
            f"TensorFlow {tf.__version__} cannot load {path.name}: {_first_line(error)}",
            hint="save it again with the TensorFlow that is installed on this host",
        ) from error
    function = model.signatures.get(_SIGNATURE)
    if function is None:
        raise ModelError(
            f"{path.name} has no function named {_SIGNATURE}",
            hint="save it with model.export(folder), or give tf.saved_model.save a signature",
        )
    specs = function.structured_input_signature[1]
    inputs = [_input(path, name, spec, shapes) for name, spec in sorted(specs.items())]
    closed = {one.name: tf.TensorSpec(one.shape, specs[one.name].dtype, one.name) for one in inputs}
    concrete = tf.function(lambda **tensors: function(**tensors)).get_concrete_function(**closed)
    try:
        content = tf.lite.TFLiteConverter.from_concrete_functions([concrete], model).convert()
    except Exception as error:
        raise UnsupportedModelError(
            f"TensorFlow cannot convert {path.name} to TFLite: {_first_line(error)}",
            hint="export the model to ONNX from the program that made it",
        ) from error
    check_agreement(path.name, inputs, _original(function, inputs), _converted(content, inputs))
    target.write_bytes(content)


def _input(path: Path, name: str, spec: Any, shapes: Mapping[str, tuple[int, ...]]) -> Input:
    """Return an input; its batch is 1 unless a shape is given."""
    own = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    if name in shapes:
        shape: tuple[Any, ...] = shapes[name]
    elif own is None or None in own[1:]:
        raise missing_shape(path.name, name)
    else:
        shape = (own[0] or 1, *own[1:]) if own else ()
    return Input(name, spec.dtype.name, shape)


def _original(function: Any, inputs: Sequence[Input]) -> Any:
    def run(arrays: list[Array]) -> Sequence[Array]:
        given = {one.name: tf.constant(array) for one, array in zip(inputs, arrays, strict=True)}
        results = function(**given)
        return [np.asarray(results[name]) for name in sorted(results)]

    return run


def _converted(content: bytes, inputs: Sequence[Input]) -> Any:
    interpreter = tf.lite.Interpreter(model_content=content)
    runner = interpreter.get_signature_runner()

    def run(arrays: list[Array]) -> Sequence[Array]:
        given = {one.name: array for one, array in zip(inputs, arrays, strict=True)}
        results = runner(**given)
        return [np.asarray(results[name]) for name in sorted(results)]

    return run


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")
