"""Bind the user's shapes and constants to a model's inputs, whatever the format."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.errors import ModelError
from edgekit.base.options import option
from edgekit.base.shapes import Shape
from edgekit.base.tensors import OpenTensorSpec, TensorSpec
from edgekit.base.wording import counted
from edgekit.models.model import ModelSource
from edgekit.models.ranges import check_open, ranges_of

UNKNOWN_RANK = "..."
EXAMPLE_EXTENTS = (1, 3, 224, 224)


@dataclass(frozen=True)
class Bound:
    """The inputs, all with a shape, and the values of inputs that became constants."""

    inputs: tuple[TensorSpec, ...]
    constants: Mapping[str, Array]
    ranges: Mapping[str, Shape] = field(default_factory=dict)
    """The shapes of the inputs that vary, with a range in each such dimension."""


def bind_inputs(
    declared: tuple[OpenTensorSpec, ...], source: ModelSource, names: list[str] | None = None
) -> Bound:
    """Give every input its shape or its value; `ModelError` if one is missing or wrong. `names` are
    those that an option may name."""
    known = [spec.name for spec in declared] if names is None else names
    for what, given in (("shape", source.shapes), ("constant", source.constants)):
        for name in given:
            _check_name(name, known, option(what))
    specs = tuple(spec for spec in declared if spec.name not in source.constants)
    check_open(specs, source.ranges)
    extents = _named_extents(specs, source.shapes)
    inputs = tuple(_close(spec, source.shapes.get(spec.name), extents) for spec in specs)
    _check_all_closed(inputs)
    bound = tuple(closed(spec) for spec in inputs)
    return Bound(
        bound,
        {
            spec.name: _constant(spec, source.constants[spec.name])
            for spec in declared
            if spec.name in source.constants
        },
        ranges_of(
            specs,
            {spec.name: spec.shape for spec in bound},
            {**source.shapes, **source.ranges},
        ),
    )


def closed(spec: OpenTensorSpec, shape: tuple[int, ...] | None = None) -> TensorSpec:
    """Return the same tensor with this shape, or with its own, which is known."""
    extents = tuple(int(extent) for extent in (spec.shape if shape is None else shape))
    return TensorSpec(spec.name, spec.dtype, extents, spec.quantization)


def known_extents(spec: OpenTensorSpec, source: ModelSource) -> OpenTensorSpec:
    """Return the input with the shape that the user gave for it, if any."""
    return _close(spec, source.shapes.get(spec.name), {})


def _check_name(name: str, names: list[str], option: str) -> None:
    if name in names:
        return
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    raise ModelError(
        f"{option} names {name!r}, but the model has no such input",
        hint=f"did you mean {close[0]!r}? Its inputs are: {', '.join(names)}"
        if close
        else "the model has no inputs",
    )


def _named_extents(
    specs: tuple[OpenTensorSpec, ...], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """Return the extents that the given shapes imply for named dimensions, one for each name."""
    extents: dict[str, int] = {}
    for spec in specs:
        for extent, given in zip(spec.shape, shapes.get(spec.name, ()), strict=False):
            if not isinstance(extent, str) or extent in ("?", UNKNOWN_RANK):
                continue
            if extents.setdefault(extent, given) != given:
                raise ModelError(
                    f"the dimension {extent!r} is given as {extents[extent]} and as {given}",
                    hint=f"every dimension called {extent!r} has the same extent: "
                    f"give it one in all {option('shape')} options",
                )
    return extents


def _close(
    spec: OpenTensorSpec, given: tuple[int, ...] | None, extents: Mapping[str, int]
) -> OpenTensorSpec:
    if given is None:
        shape = tuple(
            extents.get(extent, extent) if isinstance(extent, str) else extent
            for extent in spec.shape
        )
        return OpenTensorSpec(spec.name, spec.dtype, shape)
    if any(extent < 1 for extent in given):
        raise ModelError(
            f"{option('shape', f'{spec.name}={_text(given)}')} has a dimension below 1",
            hint="every dimension is a positive whole number",
        )
    if spec.shape == (UNKNOWN_RANK,):
        return OpenTensorSpec(spec.name, spec.dtype, given)
    if len(given) != len(spec.shape):
        raise ModelError(
            f"{option('shape', f'{spec.name}={_text(given)}')} has "
            f"{counted(len(given), 'dimension')}; "
            f"the model's input has {len(spec.shape)}: [{_text(spec.shape)}]",
            hint=f"give {counted(len(spec.shape), 'dimension')}",
        )
    for index, (fixed, extent) in enumerate(zip(spec.shape, given, strict=True)):
        if isinstance(fixed, int) and fixed != extent:
            raise ModelError(
                f"{option('shape', f'{spec.name}={_text(given)}')} contradicts the model: "
                f"dimension {index} is fixed at {fixed}",
                hint=f"the input is [{_text(spec.shape)}]; {option('reshape')} overrides a shape "
                "that an ONNX or TFLite graph does not need",
            )
    return OpenTensorSpec(spec.name, spec.dtype, given)


def _check_all_closed(specs: tuple[OpenTensorSpec, ...]) -> None:
    opened = [spec for spec in specs if spec.open_dimensions]
    if not opened:
        return
    listed = ", ".join(f"{spec.name} [{_text(spec.shape)}]" for spec in opened)
    example = " ".join(option("shape", f"{spec.name}={_example(spec)}") for spec in opened)
    raise ModelError(
        f"the shape of {'an input' if len(opened) == 1 else 'some inputs'} is open: {listed}",
        hint=f"fix it, for example: {example}",
    )


def _example(spec: OpenTensorSpec) -> str:
    shape = EXAMPLE_EXTENTS if spec.shape == (UNKNOWN_RANK,) else spec.shape
    usual = EXAMPLE_EXTENTS if len(shape) == len(EXAMPLE_EXTENTS) else (1,) * len(shape)
    return _text(tuple(e if isinstance(e, int) else usual[index] for index, e in enumerate(shape)))


def _text(shape: tuple[int | str, ...]) -> str:
    return ",".join(str(extent) for extent in shape)


def _constant(spec: OpenTensorSpec, value: Array) -> Array:
    """Return the value in the input's dtype; `ModelError` if it does not fit the input."""
    if spec.dtype in ("unknown", "string"):
        raise ModelError(
            f"{option('constant', spec.name)} can't be set: the input holds {spec.dtype} values",
            hint="only tensors of numbers can be bound",
        )
    shape = spec.shape
    array = np.asarray(value)
    if shape == () and array.size == 1:
        array = array.reshape(())
    fits = shape == (UNKNOWN_RANK,) or (
        len(shape) == array.ndim
        and all(isinstance(e, str) or e == a for e, a in zip(shape, array.shape, strict=True))
    )
    if not fits:
        raise ModelError(
            f"{option('constant', spec.name)} has shape {list(array.shape)}; "
            f"the model's input is [{_text(shape)}]",
            hint="give as many values as the input holds",
        )
    cast = array.astype(numpy_dtype(spec.dtype))
    if not np.array_equal(cast.astype(array.dtype), array, equal_nan=array.dtype.kind == "f"):
        raise ModelError(
            f"{option('constant', spec.name)} does not fit into the input's type, {spec.dtype}",
            hint=f"give values that {spec.dtype} can hold",
        )
    return cast
