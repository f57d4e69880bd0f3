"""Any model file to one `Model`: a Relax module, its inputs and outputs, its content hash.

`open_model` looks at the file without TVM (fast; enough for the cache key and the oracle);
`scan_model` lists what is in it; `import_model` turns it into Relax. What importers get wrong is
repaired in `edgekit/frontends/`, one package a format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from edgekit.errors import ModelError
from edgekit.events import SILENT, Events
from edgekit.tensors import OpenTensorSpec, TensorSpec
from edgekit.wording import nearest

if TYPE_CHECKING:
    import numpy as np
    import tvm

ModelFormat = Literal["onnx", "tflite", "torch"]

MODEL_SUFFIXES: Mapping[str, ModelFormat] = {".onnx": "onnx", ".tflite": "tflite", ".pt2": "torch"}


@dataclass(frozen=True)
class ModelSource:
    """A model file and how its open ends are to be closed."""

    path: Path
    format: ModelFormat
    sha256: str
    """Of everything that decides the module: the file, its external data, shapes, constants."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Inputs that stop being inputs: bound to these values when the model is imported."""

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class OperatorCount:
    name: str
    count: int


@dataclass(frozen=True)
class UnsupportedOperator:
    """An operator that can't be imported: the first node that uses it, and how many do."""

    name: str
    node: str
    reason: str
    count: int


@dataclass(frozen=True)
class ModelScan:
    """What a model file says about itself, before anything is compiled."""

    inputs: tuple[OpenTensorSpec, ...]
    outputs: tuple[OpenTensorSpec, ...]
    operators: tuple[OperatorCount, ...]
    """In the words of the file's own format, most frequent first."""
    parameters: int
    parameter_bytes: int
    unsupported: tuple[UnsupportedOperator, ...]


@dataclass(frozen=True)
class Model:
    """A model as the compiler takes it."""

    source: ModelSource
    module: tvm.IRModule
    """One function, `main`: tensors in (in the order of `inputs`), a tensor or a tuple out;
    every shape known; weights are constants."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    repairs: tuple[str, ...]
    """What was mended on the way in, in words a person can read."""


class Frontend(Protocol):
    """What a package under edgekit/frontends/ offers for its format."""

    def content_files(self, path: Path) -> tuple[Path, ...]:
        """Every file that the model consists of, the model file first; reads no weights."""

    def check_inputs(self, source: ModelSource) -> None: ...

    def scan(self, source: ModelSource) -> ModelScan: ...

    def load(self, source: ModelSource, events: Events) -> Model: ...


def open_model(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
) -> ModelSource:
    """Look at a model file: is it one, of which format, and what identifies it. No TVM."""
    shapes = dict(sorted((shapes or {}).items()))
    constants = dict(sorted((constants or {}).items()))
    model_format = _format_of(path)
    digest = hashlib.sha256()
    for file in _frontend(model_format).content_files(path):
        digest.update(_digest_of_file(file))
    for name, shape in shapes.items():
        digest.update(f"shape {name!r} {shape!r}\n".encode())
    for name, value in constants.items():
        digest.update(f"constant {name!r} {value.dtype} {value.shape!r}\n".encode())
        digest.update(value.tobytes())
    return ModelSource(path, model_format, digest.hexdigest(), shapes, constants)


def check_inputs(source: ModelSource) -> None:
    """Whether every input has a shape, as the file and the user have it; ModelError where not. No
    TVM: for before something that takes long and would be for nothing."""
    _frontend(source.format).check_inputs(source)


def scan_model(source: ModelSource) -> ModelScan:
    """List what a model file holds, and what of it can't be imported."""
    return _frontend(source.format).scan(source)


def import_model(source: ModelSource, events: Events = SILENT) -> Model:
    """Turn a model file into a Relax module with every shape known."""
    return _frontend(source.format).load(source, events)


def _format_of(path: Path) -> ModelFormat:
    if not path.exists():
        if path.is_symlink():
            raise ModelError(f"{path} is a link to no file", hint="link it to the model again")
        neighbours = {p.stem: p.name for p in path.parent.glob("*") if p.suffix in MODEL_SUFFIXES}
        near = nearest(path.stem, neighbours)
        hint = f"did you mean {neighbours[near]}?" if near else "check the path"
        raise ModelError(f"there is no file {path}", hint=hint)
    if path.is_dir():
        raise ModelError(
            f"{path} is a folder, not a model file",
            hint="name the .onnx, .tflite or .pt2 file itself",
        )
    model_format = MODEL_SUFFIXES.get(path.suffix.lower())
    if model_format is None:
        raise ModelError(
            f"{path.name} has a suffix that names no model format edgekit reads"
            if path.suffix
            else f"{path} has no suffix that names a model format",
            hint="edgekit reads .onnx, .tflite and PyTorch's exported .pt2",
        )
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    if size == 0:
        raise ModelError(f"{path} is empty", hint="export or download the model again")
    return model_format


def _frontend(model_format: ModelFormat) -> Frontend:
    from importlib import import_module

    return cast(Frontend, import_module(f"edgekit.frontends.{model_format}"))


def _digest_of_file(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.digest()
