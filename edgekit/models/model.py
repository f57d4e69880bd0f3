"""Turn any model file into a `Model`: a Relax module, its inputs and outputs, its content hash.

`open_model` opens the file without TVM (fast; enough for the cache key and the oracle);
`scan_model` lists its content; `import_model` turns it into Relax. Each format has a package under
`edgekit/models/`, which repairs what the importers get wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, cast, get_args

from edgekit.base.errors import ModelError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_file
from edgekit.base.options import option
from edgekit.base.shapes import Shape, has_range, largest, shape_text
from edgekit.base.tensors import OpenTensorSpec, TensorSpec
from edgekit.base.wording import nearest
from edgekit.models.ends import NO_ENDS, Ends
from edgekit.models.foreign_formats import (
    LOADERS,
    ForeignFormat,
    foreign_format,
    require_consent,
)
from edgekit.models.leftovers import REFUSED, Leftover, Leftovers
from edgekit.models.other_formats import refusal

if TYPE_CHECKING:
    import numpy as np
    import tvm

ModelFormat = Literal["onnx", "tflite", "torch", ForeignFormat]
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
    state: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Outputs, each with the input that takes its value in the next call."""


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
    ranges: Mapping[str, Shape] = field(default_factory=dict)
    """The given shapes with a dimension that varies; `shapes` has them at their largest."""
    leftovers: Leftovers = REFUSED
    """What becomes of nodes that can't be compiled. `sha256` does not cover it."""

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
    leftovers: tuple[Leftover, ...] = ()
    """The parts that stay ONNX, in the order of their calls."""
    by_size: Callable[[], tvm.IRModule] | None = None
    """Returns a module that computes the same, and decides by the lengths of its inputs which of
    several graphs it runs; None if one graph serves all sizes."""


@dataclass(frozen=True)
class Signature:
    """The model's own inputs and outputs, without what stands before and behind it."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[OpenTensorSpec, ...]


class Frontend(Protocol):
    """The interface of a format's package under edgekit/models/."""

    def content_files(self, path: Path) -> tuple[Path, ...]:
        """Return every file of the model, the model file first, without reading weights."""

    def check_inputs(self, source: ModelSource) -> None: ...

    def scan(self, source: ModelSource) -> ModelScan: ...

    def signature(self, source: ModelSource) -> Signature:
        """Return the inputs and outputs with their quantisation, without TVM."""

    def load(self, source: ModelSource, events: Events) -> Model: ...


class Joiner(Protocol):
    """The package that writes what stands before and behind models."""

    def with_ends(self, model: Model) -> Model:
        """Return the model with the ends of its source around it."""


def open_model(
    path: Path,
    shapes: Mapping[str, Shape] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    ends: Ends = NO_ENDS,
    adaptation: Adaptation = AS_IN_THE_FILE,
) -> ModelSource:
    """Open a model file and determine its format and hash, without TVM."""
    given = sorted((shapes or {}).items())
    ranges = {name: shape for name, shape in given if has_range(shape)}
    sizes = {name: largest(shape) for name, shape in given}
    constants = dict(sorted((constants or {}).items()))
    model_format = _format_of(path)
    ends = ends.settled()
    before = _stamps([path])
    files = tuple(file.absolute() for file in _frontend(model_format).content_files(path))
    if model_format in LOADERS:
        require_consent(path, cast(ForeignFormat, model_format), files)
    bound = _Bound(sizes, ranges, constants, ends)
    digest = _digest(files, bound, adaptation)
    if before is None or _stamps([path]) != before:
        raise _changed(path)
    if adaptation.reshape and model_format not in ("onnx", "tflite"):
        raise ModelError(
            f"{option('reshape')} can't change the shapes of an exported program",
            hint="export it with dynamic shapes: torch.export.export(..., dynamic_shapes=...)",
        )
    source = ModelSource(
        path, model_format, digest, sizes, constants, adaptation, files, ends, ranges
    )
    _check_ranges(source)
    return source


def as_built(source: ModelSource, sha256: str, inputs: Sequence[TensorSpec]) -> ModelSource:
    """Return the source with the adaptation that gives it this hash; unchanged if none does.

    `inputs` are those of the program that was built.
    """
    given = _bound(source)
    carried = tuple(sorted((spec.state, spec.name) for spec in inputs if spec.state))
    for reshape, kind, state in product((False, True), get_args(EndType), {(), carried}):
        adaptation = Adaptation(reshape, kind, state)
        if _digest(source.files, given, adaptation) == sha256:
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


def signature_of(source: ModelSource) -> Signature:
    """Return the model's own inputs and outputs, without TVM."""
    found = _frontend(source.format).signature(source)
    paired = {name: output for output, name in source.adaptation.state}
    inputs = (replace(spec, state=paired.get(spec.name, spec.state)) for spec in found.inputs)
    return replace(found, inputs=tuple(inputs))


def scan_model(source: ModelSource) -> ModelScan:
    """List the content of a model file, and the parts that can't be imported."""
    with held(source):
        return _frontend(source.format).scan(source)


def import_model(source: ModelSource, events: Events = SILENT) -> Model:
    """Turn a model file into a Relax module with every shape known."""
    with held(source):
        model = _frontend(source.format).load(source, events)
    if source.adaptation.ends != "float":
        from edgekit.models.integer_ends import with_integer_ends

        module, inputs, outputs = with_integer_ends(model.module, model.inputs, model.outputs)
        model = replace(model, module=module, inputs=inputs, outputs=outputs, by_size=None)
    if source.adaptation.state:
        from edgekit.models.state_pairs import with_state

        inputs = with_state(source.adaptation.state, model.inputs, model.outputs)
        model = replace(model, inputs=inputs)
    if source.ends:
        joiner = cast(Joiner, import_module("edgekit.models.onnx"))  # which writes them
        model = joiner.with_ends(model)
    return model


def _check_ranges(source: ModelSource) -> None:
    """Refuse ranges where sizes can't vary, before the file is read."""
    if not source.ranges:
        return
    name, shape = next(iter(source.ranges.items()))
    given = option("shape", f"{name}={shape_text(shape)}")
    if source.format not in ("onnx", "torch"):
        loader = LOADERS.get(cast(ForeignFormat, source.format))
        raise ModelError(
            f"{given} gives a range, and the sizes of a {loader.name if loader else 'TFLite'} "
            "model are fixed",
            hint=f"give one size: {option('shape', f'{name}={shape_text(source.shapes[name])}')}; "
            "or use the ONNX or PyTorch model that it was made from",
        )
    if source.adaptation.reshape:
        raise ModelError(
            f"{given} gives a range, and {option('reshape')} writes one size into the file",
            hint=f"leave out {option('reshape')}, or export the model with that dimension open",
        )


def _format_of(path: Path) -> ModelFormat:
    if not path.exists():
        if path.is_symlink():
            raise ModelError(f"{path} is a link to no file", hint="link it to the model again")
        neighbours = {p.stem: p.name for p in path.parent.glob("*") if p.suffix in MODEL_SUFFIXES}
        near = nearest(path.stem, neighbours)
        hint = f"did you mean {neighbours[near]}?" if near else "check the path"
        raise ModelError(f"there is no file {path}", hint=hint)
    model_format: ModelFormat | None = foreign_format(path)
    if model_format == "savedmodel":
        return model_format
    model_format = model_format or MODEL_SUFFIXES.get(path.suffix.lower())
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
    package = "foreign" if model_format in LOADERS else model_format
    return cast(Frontend, import_module(f"edgekit.models.{package}"))


class _Bound(NamedTuple):
    """What a user gives for a model."""

    shapes: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, Shape]
    constants: Mapping[str, np.ndarray]
    ends: Ends


def _bound(source: ModelSource) -> _Bound:
    return _Bound(source.shapes, source.ranges, source.constants, source.ends)


def _digest(files: Iterable[Path], given: _Bound, adaptation: Adaptation) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(bytes.fromhex(sha256_file(file)))
    for name, shape in given.shapes.items():
        digest.update(f"shape {name!r} {shape!r}\n".encode())
    for name, ranges in given.ranges.items():
        digest.update(f"range {name!r} {shape_text(ranges)}\n".encode())
    for name, value in given.constants.items():
        digest.update(f"constant {name!r} {value.dtype} {value.shape!r}\n".encode())
        digest.update(value.tobytes())
    if given.ends:
        digest.update(given.ends.in_program.identity().encode())
    if replace(adaptation, state=()) != AS_IN_THE_FILE:
        digest.update(f"{adaptation!r}\n".encode())
    for output, name in adaptation.state:
        digest.update(f"state {output!r} {name!r}\n".encode())
    return digest.hexdigest()


def _is_same(source: ModelSource, before: _Stamps) -> bool:
    """Tell whether the files match the source's hash, and have not changed since the stamps."""
    if not source.files:
        return True
    try:
        digest = _digest(source.files, _bound(source), source.adaptation)
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
