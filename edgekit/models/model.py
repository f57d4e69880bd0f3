"""Turn any model file into a `Model`: a Relax module, its inputs and outputs, its content hash.

`open_model` opens the file without TVM (fast; enough for the cache key and the oracle);
`scan_model` lists its content; `import_model` turns it into Relax. Each format has a package under
`edgekit/models/`, which repairs what the importers get wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast, get_args

from edgekit.base.errors import ModelError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_file
from edgekit.base.options import option
from edgekit.base.tensors import OpenTensorSpec, TensorSpec
from edgekit.base.wording import nearest
from edgekit.models.ends import NO_ENDS, Ends
from edgekit.models.other_formats import refusal

if TYPE_CHECKING:
    import numpy as np
    import tvm

ModelFormat = Literal["onnx", "tflite", "torch"]
EndType = Literal["float", "int8"]
_Stamps: TypeAlias = "tuple[tuple[int, ...], ...] | None"

MODEL_SUFFIXES: Mapping[str, ModelFormat] = {".onnx": "onnx", ".tflite": "tflite", ".pt2": "torch"}


@dataclass(frozen=True)
class Adaptation:
    """The changes to a model that a user asks for."""

    reshape: bool = False
    """Whether given shapes override those that the file fixes."""
    ends: EndType = "float"
    """The type of the inputs and outputs that the model only quantises."""


AS_IN_THE_FILE = Adaptation()


@dataclass(frozen=True)
class ModelSource:
    """A model file with the shapes and constants given for it."""

    path: Path
    format: ModelFormat
    sha256: str
    """The hash of all that decides the module: the file, its external data, shapes, constants, and
    the ends that are part of the program."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The values of inputs that become constants when the model is imported."""
    adaptation: Adaptation = AS_IN_THE_FILE
    files: tuple[Path, ...] = ()
    """The files that `sha256` covers, the model file first."""
    ends: Ends = NO_ENDS
    """What stands before and behind the model."""

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class OperatorCount:
    name: str
    count: int


@dataclass(frozen=True)
class UnsupportedOperator:
    """An operator that can't be imported: its first node, and the number of its nodes."""

    name: str
    node: str
    reason: str
    count: int


@dataclass(frozen=True)
class ModelScan:
    """A summary of a model file, made without compiling it."""

    inputs: tuple[OpenTensorSpec, ...]
    outputs: tuple[OpenTensorSpec, ...]
    operators: tuple[OperatorCount, ...]
    """The operators, named as in the file's format, most frequent first."""
    parameters: int
    parameter_bytes: int
    unsupported: tuple[UnsupportedOperator, ...]


@dataclass(frozen=True)
class Model:
    """A model in the form that the compiler takes."""

    source: ModelSource
    module: tvm.IRModule
    """A module with one function, `main`: tensors in (in the order of `inputs`), a tensor or a
    tuple out. Every shape is known, and weights are constants."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    repairs: tuple[str, ...]
    """The repairs made on import, as sentences for the user."""


class Frontend(Protocol):
    """The interface of a format's package under edgekit/models/."""

    def content_files(self, path: Path) -> tuple[Path, ...]:
        """Return every file of the model, the model file first, without reading weights."""

    def check_inputs(self, source: ModelSource) -> None: ...

    def scan(self, source: ModelSource) -> ModelScan: ...

    def load(self, source: ModelSource, events: Events) -> Model: ...


def open_model(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    ends: Ends = NO_ENDS,
    adaptation: Adaptation = AS_IN_THE_FILE,
) -> ModelSource:
    """Open a model file and determine its format and hash, without TVM."""
    shapes = dict(sorted((shapes or {}).items()))
    constants = dict(sorted((constants or {}).items()))
    model_format = _format_of(path)
    ends = ends.settled(path.name, takes_ends=model_format == "onnx")
    before = _stamps([path])
    files = tuple(file.absolute() for file in _frontend(model_format).content_files(path))
    digest = _digest(files, shapes, constants, ends, adaptation)
    if before is None or _stamps([path]) != before:
        raise _changed(path)
    if adaptation.reshape and model_format == "torch":
        raise ModelError(
            f"{option('reshape')} can't change the shapes of an exported program",
            hint="export it with dynamic shapes: torch.export.export(..., dynamic_shapes=...)",
        )
    return ModelSource(path, model_format, digest, shapes, constants, adaptation, files, ends)


def as_built(source: ModelSource, sha256: str) -> ModelSource:
    """Return the source with the adaptation that gives it this hash; unchanged if none does."""
    given = (source.shapes, source.constants, source.ends)
    for reshape, kind in product((False, True), get_args(EndType)):
        adaptation = Adaptation(reshape, kind)
        if _digest(source.files, *given, adaptation) == sha256:
            return replace(source, adaptation=adaptation, sha256=sha256)
    return source


@contextmanager
def held(source: ModelSource) -> Iterator[None]:
    """Ensure that the block reads the files that were hashed; ModelError if another program changed
    or replaced one of them meanwhile."""
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
    """Raise ModelError if an input has no shape in the file or from the user. Works without TVM, so
    that long work does not start in vain."""
    _frontend(source.format).check_inputs(source)


def scan_model(source: ModelSource) -> ModelScan:
    """List the content of a model file, and the parts that can't be imported."""
    with held(source):
        return _frontend(source.format).scan(source)


def import_model(source: ModelSource, events: Events = SILENT) -> Model:
    """Turn a model file into a Relax module with every shape known."""
    with held(source):
        model = _frontend(source.format).load(source, events)
    if source.adaptation.ends == "float":
        return model
    from edgekit.models.integer_ends import with_integer_ends

    module, inputs, outputs = with_integer_ends(model.module, model.inputs, model.outputs)
    return replace(model, module=module, inputs=inputs, outputs=outputs)


def _format_of(path: Path) -> ModelFormat:
    if not path.exists():
        if path.is_symlink():
            raise ModelError(f"{path} is a link to no file", hint="link it to the model again")
        neighbours = {p.stem: p.name for p in path.parent.glob("*") if p.suffix in MODEL_SUFFIXES}
        near = nearest(path.stem, neighbours)
        hint = f"did you mean {neighbours[near]}?" if near else "check the path"
        raise ModelError(f"there is no file {path}", hint=hint)
    model_format = MODEL_SUFFIXES.get(path.suffix.lower())
    if model_format is None or path.is_dir():
        raise refusal(path)
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
    ends: Ends,
    adaptation: Adaptation,
) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(bytes.fromhex(sha256_file(file)))
    for name, shape in shapes.items():
        digest.update(f"shape {name!r} {shape!r}\n".encode())
    for name, value in constants.items():
        digest.update(f"constant {name!r} {value.dtype} {value.shape!r}\n".encode())
        digest.update(value.tobytes())
    if ends:
        digest.update(ends.in_program.identity().encode())
    if adaptation != AS_IN_THE_FILE:
        digest.update(f"{adaptation!r}\n".encode())
    return digest.hexdigest()


def _is_same(source: ModelSource, before: _Stamps) -> bool:
    """Tell whether the files match the source's hash, and have not changed since the stamps."""
    if not source.files:
        return True
    try:
        same = (source.shapes, source.constants, source.ends, source.adaptation)
        digest = _digest(source.files, *same)
    except OSError:
        return False
    return digest == source.sha256 and before is not None and _stamps(source.files) == before


def _stamps(files: Iterable[Path]) -> _Stamps:
    """Return values that change when a file is written or replaced. A program can set the time of
    the last write, but not that of the last change."""
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
