"""Any model file to one `Model`: a Relax module, its inputs and outputs, its content hash.

`open_model` looks at the file without TVM (fast; enough for the cache key and the oracle);
`scan_model` lists what is in it; `import_model` turns it into Relax. What importers get wrong is
repaired in `edgekit/models/`, one package a format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

from edgekit.base.errors import ModelError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_file
from edgekit.base.tensors import OpenTensorSpec, TensorSpec
from edgekit.base.wording import nearest

if TYPE_CHECKING:
    import numpy as np
    import tvm

ModelFormat = Literal["onnx", "tflite", "torch"]
_Stamps: TypeAlias = "tuple[tuple[int, ...], ...] | None"

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
    files: tuple[Path, ...] = ()
    """The files that `sha256` covers, the model file first."""

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
    """What a package under edgekit/models/ offers for its format."""

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
    before = _stamps([path])
    files = tuple(file.absolute() for file in _frontend(model_format).content_files(path))
    digest = _digest(files, shapes, constants)
    if before is None or _stamps([path]) != before:
        raise _changed(path)
    return ModelSource(path, model_format, digest, shapes, constants, files)


@contextmanager
def held(source: ModelSource) -> Iterator[None]:
    """Make sure that what the block reads is what the source's hash is of; ModelError where another
    program wrote to one of its files meanwhile, or put another file in its place."""
    before = _stamps(source.files)
    try:
        yield
    except Exception as error:
        if not _is_same(source, before):
            raise _changed(source.path) from error
        raise
    if not _is_same(source, before):
        raise _changed(source.path)


def check_inputs(source: ModelSource) -> None:
    """Whether every input has a shape, as the file and the user have it; ModelError where not. No
    TVM: for before something that takes long and would be for nothing."""
    _frontend(source.format).check_inputs(source)


def scan_model(source: ModelSource) -> ModelScan:
    """List what a model file holds, and what of it can't be imported."""
    with held(source):
        return _frontend(source.format).scan(source)


def import_model(source: ModelSource, events: Events = SILENT) -> Model:
    """Turn a model file into a Relax module with every shape known."""
    with held(source):
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

    return cast(Frontend, import_module(f"edgekit.models.{model_format}"))


def _digest(
    files: Iterable[Path],
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, np.ndarray],
) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(bytes.fromhex(sha256_file(file)))
    for name, shape in shapes.items():
        digest.update(f"shape {name!r} {shape!r}\n".encode())
    for name, value in constants.items():
        digest.update(f"constant {name!r} {value.dtype} {value.shape!r}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def _is_same(source: ModelSource, before: _Stamps) -> bool:
    """Whether the files are those of the source's hash, and were since the stamps were taken."""
    if not source.files:
        return True
    try:
        digest = _digest(source.files, source.shapes, source.constants)
    except OSError:
        return False
    return digest == source.sha256 and before is not None and _stamps(source.files) == before


def _stamps(files: Iterable[Path]) -> _Stamps:
    """What changes with each write to a file and with each file that takes its place. A program
    can set the time of the last write, but not that of the last change."""
    try:
        found = [file.stat() for file in files]
    except OSError:
        return None
    return tuple((one.st_dev, one.st_ino, one.st_size, one.st_ctime_ns) for one in found)


def _changed(path: Path) -> ModelError:
    return ModelError(
        f"{path.name} changed while edgekit read it",
        hint="run the command again once no other program writes to the model's files",
    )
