"""Finds which dimensions of a model's inputs vary, and which of them always have one size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgekit.base.errors import ModelError
from edgekit.base.options import option
from edgekit.base.shapes import Shape, shape_text
from edgekit.base.tensors import OpenTensorSpec, Range

UNKNOWN = ("?", "...")
"""What stands for a dimension without a name, or for dimensions of unknown number."""


def check_open(declared: Sequence[OpenTensorSpec], given: Mapping[str, Shape]) -> None:
    """Raise ModelError for a range of a dimension that the file fixes."""
    for spec in declared:
        shape = given.get(spec.name, ())
        for place, (fixed, extent) in enumerate(zip(spec.shape, shape, strict=False)):
            if isinstance(fixed, int) and isinstance(extent, Range):
                raise ModelError(
                    f"{option('shape', f'{spec.name}={shape_text(shape)}')} gives a range for "
                    f"dimension {place}, which the file fixes at {fixed}",
                    hint=f"the input is [{','.join(map(str, spec.shape))}]: give one size, or "
                    "export the model with that dimension open (dynamic_axes or dynamic_shapes of "
                    "PyTorch's exporters)",
                )


def ranges_of(
    declared: Sequence[OpenTensorSpec],
    sizes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, Shape],
) -> dict[str, Shape]:
    """Return the shape of every input that varies, with its range in each such dimension.

    `sizes` are the largest sizes of all inputs, and `given` the shapes that the user gave.
    Dimensions that share a name, in the file or in `given`, get one range with one name. ModelError
    where two sizes for one name differ.
    """
    ranged = [
        (spec.name, place, _dimension(spec, place), extent)
        for spec in declared
        for place, extent in enumerate(given.get(spec.name, ()))
        if isinstance(extent, Range)
    ]
    called: dict[str, str] = {}
    for _, _, dimension, extent in ranged:
        if dimension and extent.name and called.setdefault(dimension, extent.name) != extent.name:
            raise ModelError(
                f"the dimension {dimension!r} is given as {called[dimension]!r} and as "
                f"{extent.name!r}",
                hint="dimensions of one name in the file have one size: give them one name",
            )
    ranges: dict[str, Range] = {}
    names: dict[tuple[str, int], str] = {}
    for tensor, place, dimension, extent in ranged:
        name = extent.name or called.get(dimension, dimension) or f"{tensor}_{place}"
        if dimension:
            called[dimension] = name
        names[tensor, place] = name
        extent = replace(extent, name=name)
        if ranges.setdefault(name, extent) != extent:
            raise _two_sizes(name, str(ranges[name]), str(extent))
    found: dict[str, Shape] = {}
    for spec in declared:
        shape: list[int | Range] = list(sizes.get(spec.name, ()))
        for place, size in enumerate(sizes.get(spec.name, ())):
            known = names.get((spec.name, place)) or called.get(_dimension(spec, place))
            if known is None:
                continue
            if size != ranges[known].largest or (
                spec.name in given and not isinstance(given[spec.name][place], Range)
            ):
                raise _two_sizes(known, str(ranges[known]), str(size))
            shape[place] = ranges[known]
        if any(isinstance(extent, Range) for extent in shape):
            found[spec.name] = tuple(shape)
    return found


def _dimension(spec: OpenTensorSpec, place: int) -> str:
    """Return the file's name of a dimension; empty if it has none."""
    extent = spec.shape[place] if place < len(spec.shape) else "?"
    return "" if extent in UNKNOWN else str(extent)


def _two_sizes(name: str, first: str, second: str) -> ModelError:
    return ModelError(
        f"the size {name!r} is given as {first} and as {second}",
        hint=f"every dimension of that name has one size: give it the same range in all "
        f"{option('shape')} options, or in one alone",
    )
