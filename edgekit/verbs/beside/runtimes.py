"""The runtimes that bundles are timed beside: what they read, and how each loads a model.

They are optional packages, which only the process that runs one imports.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.base.arrays import Array
from edgekit.base.errors import MissingToolError, ModelError, UsageError
from edgekit.base.wording import did_you_mean
from edgekit.models.model import ModelSource
from edgekit.profiles.board import Board


@dataclass(frozen=True)
class Given:
    """What a runtime computes."""

    model: Path
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    """The expected outputs."""
    threads: int
    scratch: Path
    """A folder for files that the runtime converts the model into."""


@dataclass(frozen=True)
class Loaded:
    call: Callable[[], object]
    """Compute one inference."""
    outputs: Callable[[], Sequence[Array]]
    """Compute one inference and return its outputs, in the order of the model."""


@dataclass(frozen=True)
class Runtime:
    title: str
    module: str
    distribution: str
    formats: Mapping[str, str]
    """The formats of models that it reads, and their names."""
    load: Callable[[Any, Given], Loaded]
    """Load a model, given the imported module."""

    def opened(self) -> Any:
        """Import the runtime."""
        try:
            return import_module(self.module)
        except ImportError as error:
            raise MissingToolError(
                f"{self.title} is not installed", hint="pip install 'edgekit[beside]'"
            ) from error


def _load_onnxruntime(module: Any, given: Given) -> Loaded:
    options = module.SessionOptions()
    options.intra_op_num_threads = given.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = module.InferenceSession(
        os.fspath(given.model), options, providers=["CPUExecutionProvider"]
    )
    feeds = dict(given.inputs)

    def call() -> Sequence[Array]:
        outputs: Sequence[Array] = session.run(None, feeds)
        return outputs

    return Loaded(call, call)


def _load_litert(module: Any, given: Given) -> Loaded:
    interpreter = module.Interpreter(model_path=os.fspath(given.model), num_threads=given.threads)
    places = interpreter.get_input_details()
    for place, array in zip(places, given.inputs.values(), strict=True):
        if tuple(place["shape"]) != array.shape:
            interpreter.resize_tensor_input(place["index"], array.shape)
    interpreter.allocate_tensors()
    for place, array in zip(places, given.inputs.values(), strict=True):
        interpreter.set_tensor(place["index"], array)

    def outputs() -> Sequence[Array]:
        interpreter.invoke()
        return [
            interpreter.get_tensor(place["index"]) for place in interpreter.get_output_details()
        ]

    return Loaded(interpreter.invoke, outputs)


_MNN_FORMATS = {".onnx": "ONNX", ".tflite": "TFLITE"}


def _load_mnn(module: Any, given: Given) -> Loaded:
    """Convert the model by MNN's own converter, and load the result."""
    converter = import_module("_tools")  # MNN's; its Python around it reports to a server
    converted = given.scratch / "model.mnn"
    words = ["-f", _MNN_FORMATS[given.model.suffix], "--bizCode", "edgekit"]
    words += ["--modelFile", os.fspath(given.model), "--MNNModel", os.fspath(converted)]
    converter.mnnconvert(["mnnconvert", *words])
    if not converted.exists():
        raise ModelError(
            f"MNN's converter does not take {given.model.name}",
            hint="leave mnn out of the runtimes",
        )
    interpreter = module.Interpreter(os.fspath(converted))
    session = interpreter.createSession({"backend": "CPU", "numThread": given.threads})
    plain = module.Tensor_DimensionType_Caffe
    types = {
        "float32": module.Halide_Type_Float,
        "int32": module.Halide_Type_Int,
        "uint8": module.Halide_Type_Uint8,
    }

    def held(tensors: Mapping[str, Any], name: str, array: Array) -> Any:
        """Return a tensor of MNN's around an array, for the input or output of that name."""
        if name not in tensors or array.dtype.name not in types:
            raise ModelError(
                f"MNN's form of the model has no {name} of {array.dtype}",
                hint="leave mnn out of the runtimes",
            )
        return module.Tensor(array.shape, types[array.dtype.name], array, plain)

    inputs = {name: _narrowed(array) for name, array in given.inputs.items()}
    places = interpreter.getSessionInputAll(session)
    tensors = {name: held(places, name, array) for name, array in inputs.items()}
    for name, array in inputs.items():
        interpreter.resizeTensor(places[name], array.shape)
    interpreter.resizeSession(session)
    for name, tensor in tensors.items():
        places[name].copyFrom(tensor)

    def outputs() -> Sequence[Array]:
        interpreter.runSession(session)
        results = interpreter.getSessionOutputAll(session)
        found = []
        for name, expected in given.outputs.items():
            array = np.zeros_like(_narrowed(expected))
            tensor = held(results, name, array)
            results[name].copyToHostTensor(tensor)
            found.append(tensor.getNumpyData().reshape(expected.shape).copy())
        return found

    return Loaded(lambda: interpreter.runSession(session), outputs)


def _narrowed(array: Array) -> Array:
    """Return integers as MNN holds them."""
    return array.astype(np.int32) if array.dtype == np.int64 else np.ascontiguousarray(array)


RUNTIMES: Mapping[str, Runtime] = {
    "onnxruntime": Runtime(
        "ONNX Runtime", "onnxruntime", "onnxruntime", {"onnx": "ONNX"}, _load_onnxruntime
    ),
    "mnn": Runtime("MNN", "MNN", "mnn", {"onnx": "ONNX", "tflite": "TFLite"}, _load_mnn),
    "litert": Runtime(
        "LiteRT",
        "ai_edge_litert.interpreter",
        "ai-edge-litert",
        {"tflite": "TFLite"},
        _load_litert,
    ),
}


def runtime_called(name: str) -> Runtime:
    if name not in RUNTIMES:
        raise UsageError(
            f"there is no runtime {name!r} to time a model beside",
            hint=did_you_mean(name, RUNTIMES, f"choose among {', '.join(RUNTIMES)}"),
        )
    return RUNTIMES[name]


def why_not(runtime: Runtime, source: ModelSource, board: Board) -> str | None:
    """Say why a runtime can't be timed with a model beside the bundles of a board; None if it
    can."""
    if not board.is_host:
        return f"runtimes are timed on this machine, and {board.name} is another one"
    if source.format not in runtime.formats:
        return f"{runtime.title} reads {' and '.join(runtime.formats.values())} only"
    if source.ends or source.ranges or source.constants:
        return (
            f"{runtime.title} would compute the file alone, without the ends, the sizes that vary "
            "and the constants of the build"
        )
    return None
