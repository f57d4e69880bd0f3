"""PyTorch programs saved by torch.export.save (.pt2), imported as ONNX.

A .pt2 file can carry code. `archive.py` reads it and writes a new archive of parts that cannot run
any; torch loads only that archive. `exporter.py` turns the program into an ONNX model in a process
of its own, and the importer of ONNX does the rest. PyTorch itself stays the oracle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edgekit.base.errors import ModelError
from edgekit.base.events import SILENT, Events
from edgekit.base.options import option
from edgekit.base.shapes import Shape
from edgekit.base.tensors import Range, TensorSpec, Varying
from edgekit.base.varying import at_sizes
from edgekit.models import onnx
from edgekit.models.binding import bind_inputs, known_extents
from edgekit.models.model import (
    Model,
    ModelScan,
    ModelSource,
    OperatorCount,
    Signature,
    UnsupportedOperator,
)
from edgekit.models.torch.archive import CheckedProgram, ProgramOutline, read_program
from edgekit.models.torch.conversion import converted
from edgekit.models.torch.guards import holds

_MOST_SIZES = 1024
"""The sizes of a range at which the conditions of a program are checked, besides the largest."""


def check_inputs(source: ModelSource) -> None:
    """Do nothing: open shapes are known only after reading the file, in `load`."""


def content_files(path: Path) -> tuple[Path, ...]:
    """Return the files of the model: a saved program is one file."""
    return (path,)


def scan(source: ModelSource) -> ModelScan:
    """List the content of the file, and the operators that can't be compiled."""
    outline = read_program(source.path).outline
    counts = Counter(outline.operators)
    return ModelScan(
        inputs=tuple(
            known_extents(spec, source)
            for spec in outline.inputs
            if spec.name not in source.constants
        ),
        outputs=outline.outputs,
        operators=tuple(OperatorCount(name, count) for name, count in counts.most_common()),
        parameters=outline.parameters,
        parameter_bytes=outline.parameter_bytes,
        unsupported=_unsupported(source, outline),
    )


def signature(source: ModelSource) -> Signature:
    """Return the inputs and outputs of the program."""
    outline = read_program(source.path).outline
    return Signature(bind_inputs(outline.inputs, source).inputs, outline.outputs)


def load(source: ModelSource, events: Events) -> Model:
    """Import the program as a Relax module, every dimension known."""
    checked = read_program(source.path)
    inputs = _closed(checked.outline, source)
    for each in _at_all_sizes(inputs):
        _check_guards(checked, each)
    with _bound(source, inputs, events) as model:
        loaded = onnx.load(model, events)
    own = len(checked.outline.outputs)  # the lengths of outputs that vary follow
    named = zip(loaded.outputs, checked.outline.outputs, strict=False)
    outputs = (*(replace(spec, name=is_.name) for spec, is_ in named), *loaded.outputs[own:])
    return replace(loaded, source=source, outputs=outputs, repairs=())


def _unsupported(source: ModelSource, outline: ProgramOutline) -> tuple[UnsupportedOperator, ...]:
    """Return the operators that can't be compiled; none is known while dimensions are open."""
    if any(known_extents(spec, source).open_dimensions for spec in outline.inputs):
        return ()
    with _bound(source, _closed(outline, source), SILENT) as model:
        return onnx.scan(model).unsupported


def _closed(outline: ProgramOutline, source: ModelSource) -> tuple[TensorSpec, ...]:
    """Return all inputs with every dimension known, those with a constant value, too."""
    bound = bind_inputs(outline.inputs, source)
    shapes = {spec.name: spec.shape for spec in bound.inputs}
    shapes |= {name: value.shape for name, value in bound.constants.items()}
    return tuple(
        TensorSpec(
            spec.name,
            spec.dtype,
            shapes[spec.name],
            varying=tuple(
                Varying(place, extent.smallest, extent.name)
                for place, extent in enumerate(bound.ranges.get(spec.name, ()))
                if isinstance(extent, Range)
            ),
        )
        for spec in outline.inputs
    )


@contextmanager
def _bound(
    source: ModelSource, inputs: tuple[TensorSpec, ...], events: Events
) -> Iterator[ModelSource]:
    """Give the program as an ONNX model, with these shapes if a dimension of it varies: then all
    are open in the model."""
    with converted(source, inputs, events) as model:
        if source.ranges:
            given = [spec for spec in inputs if spec.name not in source.constants]
            shapes = {spec.name: spec.shape for spec in given}
            model = replace(model, shapes=shapes, ranges=dict(map(_ranges, given)))
        yield model


def _ranges(spec: TensorSpec) -> tuple[str, Shape]:
    shape: list[int | Range] = list(spec.shape)
    for one in spec.varying:
        shape[one.dimension] = Range(one.smallest, spec.shape[one.dimension], one.length)
    return spec.name, tuple(shape)


def _at_all_sizes(inputs: tuple[TensorSpec, ...]) -> Iterator[tuple[TensorSpec, ...]]:
    """Yield the inputs at their largest sizes, then with one size after another changed."""
    yield inputs
    lengths = {
        one.length: (one.smallest, spec.shape[one.dimension])
        for spec in inputs
        for one in spec.varying
    }
    for name, (low, high) in lengths.items():
        for size in range(low, min(high, low + _MOST_SIZES)):
            yield tuple(at_sizes(spec, {name: size}) for spec in inputs)


def _check_guards(checked: CheckedProgram, inputs: tuple[TensorSpec, ...]) -> None:
    """Refuse shapes for which the program was not exported."""
    shapes = {spec.name: spec.shape for spec in inputs}
    for guard in checked.guards:
        try:
            fits = holds(guard, lambda name, axis: shapes[name][axis])
        except (KeyError, IndexError, ValueError) as error:
            raise ModelError(
                f"the program demands {guard}, which cannot be checked",
                hint="export it for fixed shapes",
            ) from error
        if not fits:
            given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            raise ModelError(
                f"the program does not take {given}: it demands {guard}",
                hint=f"choose a {option('shape')} that the program was exported for",
            )
